//go:build race

package roster

const raceDetector = true
