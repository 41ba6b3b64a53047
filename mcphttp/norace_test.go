//go:build !race

package mcphttp_test

// raceDetector reports whether the race detector is enabled.
const raceDetector = false
