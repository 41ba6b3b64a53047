package bolt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// manyTasks is the number of waiting tasks. A tenth of them starts first, to compare.
	manyTasks = 10_000
	// fewerTasks is how many there are in a file, where each takes its way to the disk several
	// times, unless roundsVariable is set: this takes long.
	fewerTasks = 2_000
)

// A question is a call whose handler asks.
type question struct {
	Number int `json:"number"`
}

func TestManyWaitingTasks(t *testing.T) {
	n := manyTasks
	if testing.Short() || raceDetector { // which takes ten times as long, and memory of its own
		n /= 10
	}
	t.Run("in memory", func(t *testing.T) { testManyTasks(t, n, tasks.NewMemory()) })
	path := filepath.Join(t.TempDir(), "tasks.db")
	t.Run("in a file", func(t *testing.T) {
		if os.Getenv(roundsVariable) == "" {
			n = min(n, fewerTasks)
		}
		testManyTasks(t, n, open(t, path))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the file has %d KB", info.Size()>>10)
	})
}

// testManyTasks has many tasks wait on one server, and answers them all.
func testManyTasks(t *testing.T, n int, store tasks.Store) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := mcp.NewServer("many", "1", &mcp.ServerOptions{Logger: log})
	m := tasks.NewServer(s, &tasks.Options{Store: store, MaxPerPrincipal: 2 * n, PollInterval: 50 * time.Millisecond,
		Logger: log})
	var entered atomic.Int64
	tasks.AddTool(m, &mcp.Tool{Name: "ask"}, nil, func(ctx context.Context, in question) (string, error) {
		entered.Add(1)
		word, err := mcp.Ask[string](ctx, "word", fmt.Sprint("What is the word for ", in.Number, "?"), nil)
		return fmt.Sprint(in.Number, " is ", word), err
	})
	opts := &mcp.ClientOptions{Logger: log, Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult,
		error) {
		return nil, errors.New("the test answers itself")
	}}
	client, err := mcp.Connect(t.Context(), mcp.InMemory(s), tasks.Declare(opts, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	ids := make([]string, n)
	ask := func(numbers []int) (took time.Duration) {
		begun := time.Now()
		each(numbers, func(i int) {
			h, err := tasks.Start(t.Context(), client, "ask", question{i})
			if err != nil {
				t.Errorf("task %d: %v", i, err)
				return
			}
			ids[i] = h.ID()
			until(t, h, tasks.StatusInputRequired)
		})
		return time.Since(begun)
	}
	few := n / 10
	ask(numbers[:few])
	before := measure()
	took := ask(numbers[few:])
	waiting := measure()
	perTask := (waiting.heap - before.heap) / (n - few)
	t.Logf("%d waiting tasks: %d goroutines, heap in use %d KB; %d tasks: %d goroutines, %d KB; %d bytes for each task, %v to start one",
		few, before.goroutines, before.heap>>10, n, waiting.goroutines, waiting.heap>>10, perTask,
		(took / time.Duration(n-few)).Round(time.Microsecond))
	if more := waiting.goroutines - before.goroutines; more > 10 {
		t.Errorf("there are %d goroutines more for %d tasks more", more, n-few)
	}
	begun := time.Now()
	each(numbers, func(i int) { answerOpen(t, tasks.Resume(client, ids[i]), fmt.Sprint("word ", i)) })
	each(numbers, func(i int) {
		task := until(t, tasks.Resume(client, ids[i]), tasks.StatusCompleted)
		if want := fmt.Sprintf(`"text":"%d is word %d"`, i, i); !strings.Contains(string(task.Result), want) {
			t.Errorf("task %d returned %s, want %s", i, task.Result, want)
		}
	})
	t.Logf("all answered in %v", time.Since(begun).Round(time.Millisecond))
	if got := entered.Load(); got != int64(2*n) {
		t.Errorf("the handler was entered %d times, want %d: once to ask and once with the answer", got, 2*n)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// answerOpen answers the question of a task.
func answerOpen(t *testing.T, h *tasks.Handle, word string) {
	answers := map[string]any{}
	for key := range until(t, h, tasks.StatusInputRequired).InputRequests {
		answers[key] = &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"` + word + `"}`)}
	}
	if err := h.Answer(t.Context(), answers); err != nil || len(answers) != 1 {
		t.Errorf("answer %d questions: %v", len(answers), err)
	}
}

// until polls a task until it has a status, and returns it.
func until(t *testing.T, h *tasks.Handle, status tasks.Status) *tasks.Task {
	for {
		task, err := h.Get(t.Context())
		switch {
		case err != nil:
			t.Error(err)
			return &tasks.Task{}
		case task.Status == status:
			return task
		case task.Status.Final():
			t.Errorf("a task is %s with %v, want it %s", task.Status, task.Error, status)
			return task
		}
		time.Sleep(time.Millisecond) // others need the processor
	}
}

type measurement struct{ heap, goroutines int }

// measure returns what is in use once all that can go has gone.
func measure() measurement {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return measurement{int(stats.HeapInuse), runtime.NumGoroutine()}
}
