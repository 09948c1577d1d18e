//go:build race

package redlock

const RaceDetector = true
