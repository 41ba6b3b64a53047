package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

var testKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func testOptions(dir string) *audit.Options {
	return &audit.Options{Dir: dir, Key: testKey, Sync: audit.SyncNever, Logger: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, o *audit.Options) *audit.Log {
	t.Helper()
	l, err := audit.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t testing.TB, l *audit.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// call returns the record of a call that has ended.
func call(id int) *event.Record {
	return &event.Record{Event: event.End, Call: fmt.Sprint("call-", id), Method: "tools/call", Public: "fs__read",
		Action: policy.Action{Kind: policy.ActionCall, Caller: &policy.Caller{}, Server: "fs", Target: "read",
			Arguments: json.RawMessage(`{"path":"/srv/notes.txt","limit":10}`)},
		Result: json.RawMessage(`{"content":[{"type":"text","text":"hello"}],"resultType":"complete"}`),
		Client: json.RawMessage(`{"name":"test","version":"1"}`), Digest: [32]byte{1},
		Start: time.Now(), Duration: time.Millisecond}
}

func record(t testing.TB, l *audit.Log, all ...*event.Record) {
	t.Helper()
	for _, r := range all {
		if err := l.Record(r); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(t testing.TB, dir string) (all []*audit.Entry) {
	t.Helper()
	for e, err := range audit.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func events(all []*audit.Entry) string {
	var names []string
	for _, e := range all {
		names = append(names, e.Event)
	}
	return strings.Join(names, " ")
}

// verify returns the reports, which must have no problems.
func verify(t testing.TB, dir string) []*audit.ChainReport {
	t.Helper()
	r, err := audit.Verify(dir, &audit.VerifyOptions{Keys: []ed25519.PublicKey{testKey.Public().(ed25519.PublicKey)}})
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Chains
}

// only returns the segments of a folder.
func files(t testing.TB, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRecordsAreWrittenAndVerified(t *testing.T) {
	dir := t.TempDir()
	l := open(t, testOptions(dir))
	failed := call(2)
	failed.Result, failed.Err = nil, &hosterr.Error{Code: hosterr.CodeTimeout, Server: "fs", MayHaveRun: true,
		Err: mcp.ErrTimeout}
	refused := call(3)
	refused.Event, refused.Result, refused.Err = event.Refused, nil, mcp.Errorf(-32602, "unknown tool")
	intent := call(4)
	intent.Event = event.Intent
	record(t, l, call(1), failed, refused, intent,
		&event.Record{Event: event.Admin, Action: policy.Action{Server: "fs"}, Detail: []byte(`{"action":"stop"}`)})
	closeLog(t, l)
	all := readAll(t, dir)
	if got, want := events(all), "segment end end refused admin close checkpoint"; got != want {
		t.Fatalf("events %q, want %q: without strict, no intent is recorded", got, want)
	}
	e := all[1]
	if e.ID != "call-1" || e.Server != "fs" || e.Target != "read" || e.Public != "fs__read" || e.Caller != "local" ||
		e.Client.Name != "test" || e.Outcome != audit.OutcomeOK || e.Result.Bytes == 0 || e.Millis != 1 ||
		string(e.Arguments.Shape) != `{"path":"string:14","limit":"number"}` || e.Definition[:2] != "01" {
		t.Errorf("got %+v: %s", e, e.Raw)
	}
	if e = all[2]; e.Outcome != audit.OutcomeFailed || e.Error.Code != "timeout" || !e.MayHaveRun {
		t.Errorf("got %s", e.Raw)
	}
	if e = all[3]; e.Outcome != audit.OutcomeRefused || e.Error.Code != "-32602" {
		t.Errorf("got %s", e.Raw)
	}
	if bytes.Contains(all[1].Raw, []byte("notes")) || bytes.Contains(all[1].Raw, []byte("hello")) {
		t.Errorf("%s has arguments or results, want their shape only", all[1].Raw)
	}
	chains := verify(t, dir)
	if len(chains) != 1 || chains[0].Records != 7 || chains[0].Signed != 7 || chains[0].Warning != "" {
		t.Errorf("got %+v", chains[0])
	}
	if err := l.Record(call(5)); !errors.Is(err, audit.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func TestChainIsContinued(t *testing.T) {
	dir := t.TempDir()
	for n := range 3 {
		l := open(t, testOptions(dir))
		record(t, l, call(n))
		closeLog(t, l)
	}
	if got := len(files(t, dir)); got != 1 {
		t.Errorf("%d segments, want 1", got)
	}
	chains := verify(t, dir)
	if len(chains) != 1 || chains[0].Records != 12 {
		t.Errorf("got %+v, want one chain", chains)
	}
	other := testOptions(dir)
	other.Key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	closeLog(t, open(t, other))
	if got := len(files(t, dir)); got != 2 {
		t.Errorf("with another key: %d segments, want 2", got)
	}
}

func TestProcessesHaveChainsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	var logs []*audit.Log
	for range 3 {
		logs = append(logs, open(t, testOptions(dir)))
	}
	for i := range 100 {
		record(t, logs[i%3], call(i))
	}
	for _, l := range logs {
		closeLog(t, l)
	}
	if chains := verify(t, dir); len(chains) != 3 {
		t.Errorf("%d chains, want 3", len(chains))
	}
	last := time.Time{}
	n := 0
	for _, e := range readAll(t, dir) {
		if e.Event == "end" {
			n++
		}
		if e.Time.Before(last) && e.Event == "end" {
			t.Errorf("record %d of %s at %v follows %v", e.Seq, e.Chain, e.Time, last)
		}
		last = e.Time
	}
	if n != 100 {
		t.Errorf("%d calls, want 100", n)
	}
}

// A line that a killed process has not completed is removed, and recorded.
func TestTornLineIsRemoved(t *testing.T) {
	dir := t.TempDir()
	l := open(t, testOptions(dir))
	record(t, l, call(1))
	closeLog(t, l)
	path := files(t, dir)[0]
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString(`{"v":1,"seq":5,"t":"20`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if chains := verify(t, dir); chains[0].Torn != 22 {
		t.Errorf("got %+v, want 22 torn bytes", chains[0])
	}
	closeLog(t, open(t, testOptions(dir)))
	all := readAll(t, dir)
	if got, want := events(all), "segment end close checkpoint torn open close checkpoint"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
	if string(all[4].Detail) != `{"bytes":22}` {
		t.Errorf("torn: %s", all[4].Raw)
	}
	verify(t, dir)
}

func TestSegmentsFollowEachOther(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.SegmentSize = 2000
	for n := range 10 {
		l := open(t, o)
		record(t, l, call(n))
		closeLog(t, l)
	}
	if got := len(files(t, dir)); got < 4 {
		t.Errorf("%d segments, want at least 4", got)
	}
	if chains := verify(t, dir); len(chains) != 1 {
		t.Errorf("%d chains, want 1", len(chains))
	}
}

func BenchmarkRecord(b *testing.B) {
	for _, form := range []audit.Arguments{audit.ArgumentsShape, audit.ArgumentsFull} {
		b.Run(string(form), func(b *testing.B) {
			o := testOptions(b.TempDir())
			o.Arguments = form
			l := open(b, o)
			defer l.Close()
			r := call(1)
			b.ReportAllocs()
			for b.Loop() {
				own := *r
				for l.Record(&own) != nil { // the writer is slower than a loop that does nothing else
					b.StopTimer()
					time.Sleep(10 * time.Millisecond)
					b.StartTimer()
				}
			}
		})
	}
}
