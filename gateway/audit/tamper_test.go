package audit_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
)

// sample returns a closed log with several segments, and its lines by file.
func sample(t *testing.T) (dir string, paths []string, lines [][]string) {
	t.Helper()
	return sampleOver(t, 0)
}

// sampleOver is [sample] with a time after each segment.
func sampleOver(t *testing.T, each time.Duration) (dir string, paths []string, lines [][]string) {
	t.Helper()
	dir = t.TempDir()
	o := testOptions(dir)
	o.SegmentSize = 1500
	for n := range 8 {
		l := open(t, o)
		record(t, l, call(n), call(n+100))
		closeLog(t, l)
		time.Sleep(each)
	}
	paths = files(t, dir)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
	}
	return dir, paths, lines
}

// problem returns the first problem of a folder.
func problem(t *testing.T, dir string) *audit.Problem {
	t.Helper()
	r, err := audit.Verify(dir, &audit.VerifyOptions{Keys: []ed25519.PublicKey{testKey.Public().(ed25519.PublicKey)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Chains {
		if c.Problem != nil {
			return c.Problem
		}
	}
	return nil
}

func write(t *testing.T, path string, lines ...string) {
	t.Helper()
	text := strings.TrimSuffix(strings.Join(lines, ""), "\n") + "\n"
	if len(lines) == 0 {
		text = ""
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rehash returns a line with the hashes that its text has.
func rehash(line, prev string) (text, hash string) {
	line = strings.TrimSuffix(line, "\n")
	at := strings.LastIndex(line, `,"prev":"`)
	line = line[:at] + `,"prev":"` + prev + `"`
	sum := sha256.Sum256([]byte(line))
	hash = hex.EncodeToString(sum[:])
	return line + `,"hash":"` + hash + "\"}\n", hash
}

func hashOf(line string) string {
	at := strings.LastIndex(line, `"hash":"`) + len(`"hash":"`)
	return line[at : at+64]
}

// Every record of the log is altered and removed, one at a time. Verify names it.
func TestVerifyNamesTheFirstBadRecord(t *testing.T) {
	dir, paths, lines := sample(t)
	seq := uint64(0)
	for f := range paths {
		for n, line := range lines[f] {
			seq++
			altered := append([]string(nil), lines[f]...)
			altered[n] = strings.Replace(line, `"v":1`, `"v":2`, 1)
			write(t, paths[f], altered...)
			if p := problem(t, dir); p == nil || p.Kind != audit.ProblemAltered || p.Seq != seq || p.File != paths[f] ||
				p.Line != n+1 {
				t.Errorf("record %d altered: %v", seq, p)
			}
			last := f == len(paths)-1 && n == len(lines[f])-1
			write(t, paths[f], append(append([]string(nil), lines[f][:n]...), lines[f][n+1:]...)...)
			p := problem(t, dir)
			// The checkpoint at the end is not covered by a later one, but says nothing else.
			if p == nil && !last || p != nil && (p.Seq != seq || p.Kind != audit.ProblemRemoved) {
				if n > 0 || p == nil || p.Kind == audit.ProblemCut {
					t.Errorf("record %d removed: %v", seq, p)
				}
			}
			write(t, paths[f], lines[f]...)
		}
	}
	if p := problem(t, dir); p != nil {
		t.Errorf("restored: %v", p)
	}
}

// A record that is written again with its hash differs from the one that the next record names.
func TestVerifyFindsRecordsWithNewHashes(t *testing.T) {
	dir, paths, lines := sample(t)
	all := lines[0]
	const at = 1 // a call
	forged := append([]string(nil), all...)
	forged[at], _ = rehash(strings.Replace(all[at], `"outcome":"ok"`, `"outcome":"no"`, 1), hashOf(all[at-1]))
	write(t, paths[0], forged...)
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemAltered || p.Seq != at+1 {
		t.Errorf("one record: %v, want record %d", p, at+1)
	}
	// With the hashes of all records after it, the checkpoint that covers it is not valid.
	prev := hashOf(all[at-1])
	for n := at; n < len(forged); n++ {
		forged[n], prev = rehash(forged[n], prev)
	}
	write(t, paths[0], forged...)
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemAltered || p.Seq > at+1 ||
		!strings.Contains(p.Text, "checkpoint") {
		t.Errorf("all records after it: %v, want the checkpoint", p)
	}
}

func TestVerifyFindsTheEndThatWasCut(t *testing.T) {
	dir, paths, lines := sample(t)
	f := len(paths) - 1
	total := uint64(0)
	for _, l := range lines {
		total += uint64(len(l))
	}
	for cut := 2; cut < len(lines[f]); cut++ { // with one, the last checkpoint itself is missing
		write(t, paths[f], lines[f][:len(lines[f])-cut]...)
		want := total - uint64(cut) + 1
		if p := problem(t, dir); p == nil || p.Kind != audit.ProblemCut || p.Seq != want {
			t.Errorf("%d records cut: %v, want record %d", cut, p, want)
		}
	}
	if err := os.Remove(paths[f]); err != nil {
		t.Fatal(err)
	}
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemCut {
		t.Errorf("last segment removed: %v", p)
	}
	// A new process does not continue a chain whose end is missing: that would hide it.
	closeLog(t, open(t, testOptions(dir)))
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemCut {
		t.Errorf("after a new process: %v", p)
	}
}

func TestVerifyFindsRemovedSegments(t *testing.T) {
	for n, kind := range map[int]audit.ProblemKind{0: audit.ProblemRemoved, 1: audit.ProblemRemoved} {
		dir, paths, _ := sample(t)
		if err := os.Remove(paths[n]); err != nil {
			t.Fatal(err)
		}
		if p := problem(t, dir); p == nil || p.Kind != kind {
			t.Errorf("segment %d removed: %v, want %s", n+1, p, kind)
		}
	}
	dir, paths, _ := sample(t)
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemRemoved {
		t.Errorf("all segments removed: %v", p)
	}
}

func TestVerifyRefusesOtherKeys(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(dir)
	o.Key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	l := open(t, o)
	record(t, l, call(1))
	closeLog(t, l)
	if p := problem(t, dir); p == nil || p.Kind != audit.ProblemForged {
		t.Errorf("got %v, want a forged checkpoint", p)
	}
	if r, err := audit.Verify(dir, nil); err != nil || r.Err() != nil {
		t.Errorf("with the key of the log itself: %v, %v", r.Err(), err)
	}
}

func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	l := open(f, testOptions(dir))
	record(f, l, call(1))
	closeLog(f, l)
	text, err := os.ReadFile(files(f, dir)[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte(`"seq":2`), []byte(`"seq":1`), 1))
	f.Add([]byte("{}\n"))
	name := filepath.Base(files(f, dir)[0])
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if isRecord, _ := audit.ParseRecord(bytes.TrimSuffix(line, []byte("\n"))); isRecord {
				if got := fmt.Sprintf("%x", sha256.Sum256(line[:bytes.LastIndex(line, []byte(`,"hash"`))])); got !=
					hashOf(string(line)) {
					t.Errorf("%q is accepted with another hash", line)
				}
			}
		}
		for range audit.Read(dir) {
		}
		if _, err := audit.Verify(dir, nil); err != nil {
			t.Error(err)
		}
		l := open(t, testOptions(dir)) // continues it, or begins another chain
		record(t, l, call(2))
		closeLog(t, l)
	})
}
