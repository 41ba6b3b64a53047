package mcphttp_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(driveEnv); spec != "" {
		if err := driveMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(testhome.Main(m, func(m *testing.M) int {
		code := m.Run()
		if code != 0 {
			return code
		}
		if left := strayGoroutines(); left != "" {
			fmt.Fprintln(os.Stderr, "goroutines still running:\n"+left)
			return 1
		}
		return 0
	}))
}

// strayTime is how long goroutines may take to end after the tests. net/http closes some connections
// only after half a second, and a loaded machine takes longer.
const strayTime = 30 * time.Second

// strayGoroutines returns the stacks of the goroutines of this module and of net/http that still run
// after strayTime.
func strayGoroutines() string {
	var left []string
	for end := time.Now().Add(strayTime); time.Now().Before(end); {
		left = left[:0]
		buf := make([]byte, 1<<20)
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
			if strings.Contains(g, "patchbay") || strings.Contains(g, "net/http") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return ""
		}
		time.Sleep(20 * time.Millisecond) // TestMain cannot run in a synctest bubble
	}
	return strings.Join(left, "\n\n")
}
