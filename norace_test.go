//go:build !race

package redlock

const RaceDetector = false
