//go:build !go1.26

package redlock_test

import "testing"

const randomIsSeeded = false // before Go 1.26 nothing seeds crypto/rand: a schedule holds for any owners, a simulated run is not repeated

func seedRandom(*testing.T, uint64) {}
