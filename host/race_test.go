//go:build race

package host_test

// raceDetector reports whether the race detector is enabled.
const raceDetector = true
