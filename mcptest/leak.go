package mcptest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakTimeout is how long goroutines may take to end after a test.
const leakTimeout = 5 * time.Second

// NoLeaks fails the test if a goroutine that was started during the test still runs after it. Call
// it first, so that it checks last. It cannot be used in parallel tests, and is not needed in a
// synctest bubble.
func NoLeaks(t testing.TB) {
	t.Helper()
	before := goroutines()
	t.Cleanup(func() {
		if t.Failed() {
			return // a failed test may leave goroutines
		}
		for _, stack := range left(before) {
			t.Errorf("leaked goroutine:\n%s", stack)
		}
	})
}

// Main runs the tests of a package and returns the exit status, which is a failure if goroutines
// remain:
//
//	func TestMain(m *testing.M) { os.Exit(mcptest.Main(m)) }
func Main(m *testing.M) int {
	before := goroutines()
	status := m.Run()
	if status != 0 {
		return status
	}
	for _, stack := range left(before) {
		fmt.Fprintf(os.Stderr, "leaked goroutine:\n%s\n", stack)
		status = 1
	}
	return status
}

// left returns the stacks of the goroutines that were started since before and do not end.
func left(before map[string]string) (stacks []string) {
	wait := time.Millisecond
	for deadline := time.Now().Add(leakTimeout); ; wait *= 2 {
		stacks = stacks[:0]
		for name, stack := range goroutines() {
			if _, old := before[name]; !old && !isTesting(stack) {
				stacks = append(stacks, stack)
			}
		}
		if len(stacks) == 0 || time.Now().After(deadline) {
			return stacks
		}
		time.Sleep(wait) // there is no event to wait for
	}
}

// goroutines returns the stack of every goroutine, by its name: "goroutine" and a unique number.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	n := runtime.Stack(buf, true)
	for n == len(buf) {
		buf = make([]byte, 2*len(buf))
		n = runtime.Stack(buf, true)
	}
	all := map[string]string{}
	for _, stack := range strings.Split(string(buf[:n]), "\n\n") {
		name, _, _ := strings.Cut(stack, " [")
		all[name] = stack
	}
	return all
}

// isTesting reports whether a goroutine belongs to package testing or the runtime.
func isTesting(stack string) bool {
	ours := []string{"created by testing.", "created by runtime.", "created by os/signal.", "testing.(*M).Run("}
	return slices.ContainsFunc(ours, func(part string) bool { return strings.Contains(stack, part) })
}
