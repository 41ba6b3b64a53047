//go:build !race

package bolt_test

// raceDetector says whether the tests run with it.
const raceDetector = false
