package audit_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host/event"
)

var killRounds = flag.Int("kill-rounds", 12, "rounds of the test that kills the writer")

// writeUntilKilled prints the id of each call whose intent was stored.
func writeUntilKilled(dir, mode string) error {
	o := testOptions(dir)
	o.Sync, o.Strict, o.SegmentSize = audit.SyncSecond, true, 40_000
	if mode == "signed" {
		o.SegmentSize = 1500 // a segment and a checkpoint with almost every record
	}
	l, err := audit.Open(o)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		r := call(os.Getpid()*1_000_000 + n)
		r.Event, r.Result = event.Intent, nil
		if err := l.Record(r); err != nil {
			return err
		}
		fmt.Println(r.Call)
		_ = l.Record(call(n))
	}
}

// No intent that was acknowledged is lost, and the chain is valid, whenever the writer is killed.
func TestAcknowledgedRecordsSurviveKill(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, acknowledged := t.TempDir(), map[string]bool{}
	for round := range *killRounds {
		mode := []string{"plain", "signed"}[round%2]
		child := exec.Command(exe)
		child.Env = append(os.Environ(), writerVariable+"="+dir, modeVariable+"="+mode)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if !strings.HasPrefix(lines.Text(), "call-") {
				t.Errorf("round %d: the writer printed %q", round, lines.Text())
			}
			acknowledged[lines.Text()] = true
			if n == round*7%40 {
				_ = child.Process.Kill() // SIGKILL, at any point of what it writes next
			}
		}
		_ = child.Wait()
		if round%10 == 0 || round == *killRounds-1 {
			verify(t, dir)
		}
	}
	chains := verify(t, dir)
	if len(chains) != 1 {
		t.Errorf("%d chains, want that each process continues the one before", len(chains))
	}
	for _, e := range readAll(t, dir) {
		delete(acknowledged, e.ID)
	}
	if len(acknowledged) > 0 {
		t.Errorf("%d acknowledged intents are missing: %s", len(acknowledged), strconv.Quote(fmt.Sprint(acknowledged)))
	}
}
