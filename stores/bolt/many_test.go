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
	// manyTasks is the number of waiting tasks. A tenth of them starts first, for comparison.
	manyTasks = 10_000
	// fewerTasks is the number of tasks in a file, unless roundsVariable is set. Each task is
	// written to the disk several times, which takes long.
	fewerTasks = 2_000
)

// A question has the arguments of the tool ask.
type question struct {
	Number int `json:"number"`
}

func TestWaitingTasksHaveNoGoroutines(t *testing.T) {
	n := manyTasks
	if testing.Short() || raceDetector { // the race detector takes ten times as long, and more memory
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

// testManyTasks starts many tasks that wait for an answer, and then answers them all.
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
	elicit := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return nil, errors.New("the test uses Handle.Answer")
	}
	opts := &mcp.ClientOptions{Logger: log, Elicit: elicit}
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
			waitForStatus(t, h, tasks.StatusInputRequired)
		})
		return time.Since(begun)
	}
	few := n / 10
	ask(numbers[:few])
	before := measure()
	took := ask(numbers[few:])
	waiting := measure()
	// A task has its status before its goroutine has ended.
	for end := time.Now().Add(time.Minute); waiting.goroutines > before.goroutines+10 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
		waiting = measure()
	}
	perTask := (waiting.heap - before.heap) / (n - few)
	t.Logf("%d waiting tasks: %d goroutines, heap in use %d KB; %d tasks: %d goroutines, %d KB",
		few, before.goroutines, before.heap>>10, n, waiting.goroutines, waiting.heap>>10)
	t.Logf("%d bytes for each task, %v to start one", perTask,
		(took / time.Duration(n-few)).Round(time.Microsecond))
	if more := waiting.goroutines - before.goroutines; more > 10 {
		t.Errorf("%d additional waiting tasks have %d additional goroutines, want at most 10", n-few, more)
	}
	begun := time.Now()
	each(numbers, func(i int) { answerOpen(t, tasks.Resume(client, ids[i]), fmt.Sprint("word ", i)) })
	each(numbers, func(i int) {
		task := waitForStatus(t, tasks.Resume(client, ids[i]), tasks.StatusCompleted)
		if want := fmt.Sprintf(`"text":"%d is word %d"`, i, i); !strings.Contains(string(task.Result), want) {
			t.Errorf("task %d returned %s, want %s", i, task.Result, want)
		}
	})
	t.Logf("all answered in %v", time.Since(begun).Round(time.Millisecond))
	if got := entered.Load(); got != int64(2*n) {
		t.Errorf("the handler was called %d times, want %d: once to ask and once with the answer", got, 2*n)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// answerOpen answers the question of a task.
func answerOpen(t *testing.T, h *tasks.Handle, word string) {
	answers := map[string]any{}
	for key := range waitForStatus(t, h, tasks.StatusInputRequired).InputRequests {
		answers[key] = &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":"` + word + `"}`)}
	}
	if err := h.Answer(t.Context(), answers); err != nil || len(answers) != 1 {
		t.Errorf("answer to %d questions: %v, want one question", len(answers), err)
	}
}

// waitForStatus polls a task until it has a status, and returns it.
func waitForStatus(t *testing.T, h *tasks.Handle, status tasks.Status) *tasks.Task {
	for {
		task, err := h.Get(t.Context())
		switch {
		case err != nil:
			t.Error(err)
			return &tasks.Task{}
		case task.Status == status:
			return task
		case task.Status.Final():
			t.Errorf("a task has status %s, error %v; want status %s", task.Status, task.Error, status)
			return task
		}
		time.Sleep(time.Millisecond) // between two polls
	}
}

type measurement struct{ heap, goroutines int }

// measure returns the heap in use after garbage collection, and the number of goroutines.
func measure() measurement {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return measurement{int(stats.HeapInuse), runtime.NumGoroutine()}
}
