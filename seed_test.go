//go:build go1.26

package redlock_test

import (
	"testing"
	"testing/cryptotest"
)

// randomIsSeeded says that seedRandom does something.
const randomIsSeeded = true

// seedRandom has a test draw the same owners again whenever it is run.
func seedRandom(t *testing.T, seed uint64) { cryptotest.SetGlobalRandom(t, seed) }
