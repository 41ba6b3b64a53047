package term

import (
	"fmt"
	"time"
)

// Milliseconds returns a duration in milliseconds, rounded to microseconds.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// Counted returns a number of things in words.
func Counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
