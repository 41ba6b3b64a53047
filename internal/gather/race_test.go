//go:build race

package gather_test

// raceDetector says whether the tests run with it.
const raceDetector = true
