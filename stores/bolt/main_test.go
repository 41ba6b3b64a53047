package bolt_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// Each of these environment variables makes the test binary run as a child process of a test until
// it is killed.
const (
	writerVariable      = "PATCHBAY_TEST_WRITER"       // writes to the task store at this path
	grantWriterVariable = "PATCHBAY_TEST_GRANT_WRITER" // writes to the authorization store at this path
	stateWriterVariable = "PATCHBAY_TEST_STATE_WRITER" // writes to the state at this path
	stateFillerVariable = "PATCHBAY_TEST_STATE_FILLER" // fills the state at this path
	serverVariable      = "PATCHBAY_TEST_TASKS"        // serves tasks from this folder
	senderVariable      = "PATCHBAY_TEST_SENDER"       // sends webhooks from this folder
)

// startChild starts the test binary as a child process that runs until it is killed. It returns the
// lines of its standard output.
func startChild(t *testing.T, variable, value string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), variable+"="+value)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return child, bufio.NewScanner(out)
}

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeUntilKilled(path)
		return
	}
	if path := os.Getenv(grantWriterVariable); path != "" {
		writeGrantsUntilKilled(path)
		return
	}
	if path := os.Getenv(stateWriterVariable); path != "" {
		writeStateUntilKilled(path)
		return
	}
	if path := os.Getenv(stateFillerVariable); path != "" {
		fillState(path)
		return
	}
	if dir := os.Getenv(serverVariable); dir != "" {
		serveUntilKilled(dir)
		return
	}
	if dir := os.Getenv(senderVariable); dir != "" {
		sendUntilKilled(dir)
		return
	}
	os.Exit(testhome.Main(m, mcptest.Main))
}
