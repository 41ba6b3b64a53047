//go:build !race

package bolt_test

// raceDetector reports whether the race detector is enabled.
const raceDetector = false
