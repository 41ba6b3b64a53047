//go:build !race

package boltstore_test

// raceDetector says whether the tests run with it.
const raceDetector = false
