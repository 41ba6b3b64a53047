package bolt_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// roundsVariable is the environment variable with the number of kills.
	roundsVariable = "PATCHBAY_CHAOS_ROUNDS"
	defaultRounds  = 6
	shortRounds    = 3
	// tasksPerRound is the number of tasks that are started in a round.
	tasksPerRound = 100
	// clientWorkers is the number of concurrent requests of the test.
	clientWorkers = 20
)

// A chaos is a server that is killed and restarted, and its tasks.
type chaos struct {
	dir    string
	random *rand.Rand

	server *exec.Cmd
	stdin  io.Closer
	url    string

	mu    sync.Mutex // guards the field below
	tasks []*known
}

// A known task is one whose ID the client has received.
type known struct {
	name, tool, id string
	revision       string
	ended          *outcome // as the client has seen it; nil before
	checked        bool     // by a server that was started later
}

// An outcome is the end of a task.
type outcome struct {
	text  string // of its result
	fault string // why it failed
}

func TestTasksSurviveKillsOfTheServer(t *testing.T) {
	rounds := defaultRounds
	if testing.Short() {
		rounds = shortRounds
	}
	if n, err := strconv.Atoi(os.Getenv(roundsVariable)); err == nil {
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &chaos{dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 0))}
	defer c.kill()
	cut, again := 0, 0
	for round := range rounds {
		revision := []string{"", "2025-11-25"}[round%2]
		c.start(t)
		c.startTasks(t, round, revision)
		c.start(t)
		c.finish(t, revision)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	runs := c.checkJournal(t)
	for _, k := range c.tasks {
		if k.ended.fault != "" {
			cut++
		}
		if runs["run "+k.name] > 1 {
			again++
		}
	}
	t.Logf("%d times killed, %d tasks, %d of them were cut off, %d were run again", rounds, len(c.tasks), cut, again)
	if rounds >= 10 && (cut == 0 || again == 0) {
		t.Error("the server was never killed at a moment that matters")
	}
	c.readAll(t)
	c.checkStore(t)
}

// start starts the server with the files in the folder.
func (c *chaos) start(t *testing.T) {
	t.Helper()
	c.kill()
	c.server = exec.Command(os.Args[0])
	c.server.Env = append(os.Environ(), serverVariable+"="+c.dir)
	c.server.Stderr = os.Stderr
	stdin, err := c.server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	out, err := c.server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.server.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	if c.url = lines.Text(); !strings.HasPrefix(c.url, "http") {
		t.Fatalf("the server said %q", c.url)
	}
}

// kill ends the server with SIGKILL, amid whatever it does.
func (c *chaos) kill() {
	if c.server != nil {
		_ = c.server.Process.Kill()
		_ = c.server.Wait()
		_ = c.stdin.Close()
		c.server = nil
	}
}

func (c *chaos) connect(t *testing.T, revision string) *mcp.Client {
	t.Helper()
	log := slog.New(slog.DiscardHandler) // a killed server is expected
	opts := &mcp.ClientOptions{
		Revision: revision, Logger: log, Timeout: 20 * time.Second,
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"yes"}`)}, nil
		},
	}
	client, err := mcp.Connect(t.Context(), mcphttp.NewTransport(c.url, &mcphttp.TransportOptions{Logger: log}),
		tasks.Declare(opts, nil))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// each calls f for all of a list, several at a time.
func each[T any](all []T, f func(v T)) {
	var workers sync.WaitGroup
	next := make(chan T)
	for range clientWorkers {
		workers.Go(func() {
			for v := range next {
				f(v)
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	workers.Wait()
}

// toolOf returns the tool that the task of a round with that number calls.
func toolOf(i int) string { return []string{"plain", "again", "ask"}[i%3] }

// startTasks starts tasks, waits for some of them, and kills the server meanwhile, at a random
// moment.
func (c *chaos) startTasks(t *testing.T, round int, revision string) {
	t.Helper()
	client := c.connect(t, revision)
	var calls []*known
	millis := map[string]int{}
	for i := range tasksPerRound {
		name := fmt.Sprintf("%d-%d", round, i)
		calls = append(calls, &known{name: name, tool: toolOf(i), revision: revision})
		millis[name] = c.random.IntN(200)
	}
	allStarted, killed := make(chan struct{}), make(chan struct{})
	ctx, end := context.WithCancel(t.Context()) // waiting does not end when the server is killed
	defer end()
	early, after := c.random.IntN(3) == 0, time.Duration(c.random.IntN(300))*time.Millisecond
	go func() {
		defer close(killed)
		if early {
			after /= 4 // while they are being started
		} else {
			<-allStarted
		}
		time.Sleep(after) // the test is about random moments
		c.kill()
		end()
	}()
	var handles []*tasks.Handle
	each(calls, func(k *known) {
		h, err := tasks.Start(ctx, client, k.tool, work{k.name, millis[k.name]})
		if err != nil {
			return // the server was killed; the task is unknown
		}
		if k.id = h.ID(); k.id == "" {
			t.Errorf("%s became no task", k.name)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tasks = append(c.tasks, k)
		handles = append(handles, h)
	})
	close(allStarted)
	fresh := c.tasks[len(c.tasks)-len(handles):]
	each(fresh[:len(fresh)/2], func(k *known) { k.ended = wait(ctx, client, k) })
	<-killed
	_ = client.Close()
}

// wait waits for a task and answers its questions. It returns nil if the server did not respond.
func wait(ctx context.Context, client *mcp.Client, k *known) *outcome {
	res, err := tasks.Resume(client, k.id).Wait(ctx)
	var fault *mcp.Error
	switch {
	case err == nil && res.IsError:
		return &outcome{fault: res.Text()}
	case err == nil:
		return &outcome{text: res.Text()}
	case errors.As(err, &fault):
		return &outcome{fault: fault.Message}
	}
	return nil
}

// finish waits for all tasks on a new server, and looks at how they ended.
func (c *chaos) finish(t *testing.T, revision string) {
	t.Helper()
	client := c.connect(t, revision)
	defer client.Close()
	each(c.tasks, func(k *known) {
		if k.revision != revision || k.checked {
			return
		}
		ended := wait(t.Context(), client, k)
		if ended == nil {
			t.Errorf("%s %s: the new server could not be asked", k.tool, k.name)
			return
		}
		if k.ended != nil && *k.ended != *ended {
			t.Errorf("%s %s had ended with %+v, and now with %+v", k.tool, k.name, *k.ended, *ended)
		}
		k.ended, k.checked = ended, true
		k.check(t)
	})
}

// check compares an outcome with what its tool may return.
func (k *known) check(t *testing.T) {
	t.Helper()
	want := "result of " + k.name
	if k.tool == "ask" {
		want += ": yes"
	}
	switch {
	case k.ended.text == want:
	case k.ended.fault == "":
		t.Errorf("%s %s returned %q, want %q", k.tool, k.name, k.ended.text, want)
	case k.tool == "again":
		t.Errorf("%s %s, which may run again, failed: %s", k.tool, k.name, k.ended.fault)
	case !strings.Contains(k.ended.fault, "restarted"):
		t.Errorf("%s %s failed, and says only %q", k.tool, k.name, k.ended.fault)
	}
}

// checkJournal checks that nothing ran more often than allowed. It returns how often each part was
// started.
func (c *chaos) checkJournal(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(c.dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for line := range strings.Lines(string(file)) {
		runs[strings.TrimSpace(line)]++
	}
	for part, n := range runs {
		what, name, _ := strings.Cut(part, " ")
		i, _ := strconv.Atoi(name[strings.Index(name, "-")+1:])
		if n > 1 && toolOf(i) != "again" {
			t.Errorf("%s of task %s was begun %d times", what, name, n)
		}
	}
	for _, k := range c.tasks {
		last := map[string]string{"plain": "run-end ", "again": "run-end ", "ask": "second-end "}[k.tool]
		if k.ended.fault == "" && runs[last+k.name] == 0 {
			t.Errorf("%s %s has a result, and was never done", k.tool, k.name)
		}
	}
	return runs
}

// readAll reads all tasks of all rounds again. They must not have changed.
func (c *chaos) readAll(t *testing.T) {
	t.Helper()
	for _, revision := range []string{"", "2025-11-25"} {
		client := c.connect(t, revision)
		each(c.tasks, func(k *known) {
			if k.revision != revision {
				return
			}
			if ended := wait(t.Context(), client, k); ended == nil || *ended != *k.ended {
				t.Errorf("%s %s had ended with %+v, and later with %+v", k.tool, k.name, *k.ended, ended)
			}
		})
		_ = client.Close()
	}
}

// checkStore checks the file: it has all tasks, and all that the client knows are finished.
func (c *chaos) checkStore(t *testing.T) {
	t.Helper()
	c.kill()
	s := open(t, filepath.Join(c.dir, "tasks.db"))
	byID := map[string]*known{}
	for _, k := range c.tasks {
		byID[k.id] = k
	}
	unfinished := 0
	for r, err := range s.Unfinished(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		if k := byID[r.ID]; k != nil {
			t.Errorf("%s %s is unfinished", k.tool, k.name)
		}
		unfinished++
	}
	after, n := tasks.Cursor{}, 0
	for {
		page, err := s.List(t.Context(), "", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			delete(byID, r.ID)
			after = tasks.Cursor{Created: r.Created, ID: r.ID}
			n++
		}
	}
	if len(byID) > 0 {
		t.Errorf("%d tasks are not in the store: %v", len(byID), slices.Collect(maps.Keys(byID)))
	}
	t.Logf("%d tasks in the store, %d of them unfinished, of calls that had no answer", n, unfinished)
}
