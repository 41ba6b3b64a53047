//go:build race

package mcp_test

// raceEnabled: the race detector allocates for itself, and drops what pools hold.
const raceEnabled = true
