//go:build race

package mcphttp_test

// raceDetector says whether the tests run with it.
const raceDetector = true
