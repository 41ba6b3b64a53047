//go:build !race

package legacy_test

// raceDetector says whether the tests run with it.
const raceDetector = false
