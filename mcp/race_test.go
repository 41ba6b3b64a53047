//go:build race

package mcp_test

// raceDetector: the race detector allocates for itself, and drops what pools hold.
const raceDetector = true
