//go:build !unix

package vault

import (
	"os"
	"time"
)

// replaceFile retries for a while: a file that is open cannot be replaced.
func replaceFile(from, to string) error {
	const tries, pause = 50, 10 * time.Millisecond
	err := os.Rename(from, to)
	for i := 1; err != nil && i < tries; i++ {
		time.Sleep(pause)
		err = os.Rename(from, to)
	}
	return err
}

func syncDir(string) error { return nil }
