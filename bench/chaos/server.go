package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

const (
	shutdownTime = 4 * time.Second // for calls to finish after SIGTERM
	taskTTL      = 5 * time.Minute
	idleTime     = 20 * time.Second // of a session
	sharedIdle   = 40 * time.Second // in a shared store, which may be unavailable for a while
	sharedAge    = 20 * time.Second // of events in a shared store
)

// A serverConfig is what the parent passes to the server process, as JSON in childVariable.
type serverConfig struct {
	Dir    string // of the files that survive restarts
	Public string // the URL of the proxy, by which clients call the server
	Strict bool   // a refresh token has no grace period
	Redis  string // the URL of the store that the processes share; empty for files
	Tasks  string // the URL of a PostgreSQL for the tasks; empty for those in Redis

	Host   string   // the address of the process
	Before []string // the command that starts the process in its namespace
}

func (c *serverConfig) file(name string) string { return filepath.Join(c.Dir, name) }

// announcement is the first line that the server process prints.
type announcement struct {
	Address string // of the server
	Debug   string // of the endpoint that only the parent calls
}

// serveChild is the server process. It serves until SIGTERM, or until its parent has exited.
func serveChild(config string) error {
	var c serverConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	runs, err := openJournal(c.file("journal"))
	if err != nil {
		return err
	}
	s := &server{config: &c, runs: runs, log: log}
	stores, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := s.build(ctx, stores); err != nil {
		return err
	}
	site, handler, err := s.site(stores)
	if err != nil {
		return err
	}
	go s.tick(ctx)
	go s.late.measure(ctx)
	return errors.Join(s.serve(ctx, site, handler), s.end(), stores.close())
}

// stores are the stores of a process.
type stores struct {
	tasks  tasks.Store
	states mcp.OnceStore
	grants authserver.Store
	close  func() error
	shared *redis.Store // nil for files
}

func (s *server) open(ctx context.Context) (o stores, err error) {
	c := s.config
	if c.Redis != "" {
		// A second, because the machine is busy, also without a fault.
		o.shared, err = redis.Open(ctx, c.Redis, &redis.Options{Timeout: time.Second, EventAge: sharedAge})
		if err != nil {
			return o, err
		}
		o.tasks, o.states, o.grants = o.shared.Tasks("chaos"), o.shared.States(), o.shared.Authorization()
		o.close = func() error { o.shared.Close(); return nil }
		if c.Tasks == "" {
			return o, nil
		}
		rows, err := postgres.Open(ctx, c.Tasks, nil)
		if err != nil {
			o.shared.Close()
			return o, err
		}
		o.tasks = rows.Tasks("chaos")
		o.close = func() error { rows.Close(); o.shared.Close(); return nil }
		return o, nil
	}
	files, err := bolt.OpenTasks(c.file("tasks.db"), nil)
	if err != nil {
		return o, err
	}
	if o.grants, err = bolt.OpenAuthorization(c.file("auth.db"), nil); err != nil {
		return o, err
	}
	o.tasks, o.close = files, func() error { return errors.Join(files.Close(), o.grants.Close()) }
	o.states, err = openOnceStore(c.file("once"))
	return o, err
}

// end passes the tasks of a process that shares its store on to the other processes.
func (s *server) end() error {
	if s.config.Redis == "" {
		return nil
	}
	ending, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	_ = s.tasks.Close(ending) // an error says that handlers have not ended
	return nil
}

// A server is the MCP server of the server process.
type server struct {
	config *serverConfig
	runs   *journal
	log    *slog.Logger
	mcp    *mcp.Server
	tasks  *tasks.Server
	ticks  ticks
	late   lateness
}

// build creates the MCP server with its tools.
func (s *server) build(ctx context.Context, o stores) error {
	keys, err := readKeys(s.config.file("state.keys"))
	if err != nil {
		return err
	}
	s.mcp = mcp.NewServer("chaos", "1", &mcp.ServerOptions{
		Logger: s.log, StateKeys: keys, StateStore: o.states, StateTTL: time.Minute,
	})
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "echo"}, s.echo)
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "append"}, s.append)
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "slow"}, s.slow)
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "stream"}, s.stream)
	mcp.AddTool(s.mcp, &mcp.Tool{Name: "ask"}, s.ask)
	s.addTicks()
	s.tasks = tasks.NewServer(s.mcp, &tasks.Options{
		Store: o.tasks, MaxTasks: 1e6, MaxPerPrincipal: 1e6, PollInterval: 50 * time.Millisecond, TTL: taskTTL,
		MaxRunning: 30, Logger: s.log,
	})
	tasks.AddTool(s.tasks, &mcp.Tool{Name: "work"}, nil, s.slow)
	tasks.AddTool(s.tasks, &mcp.Tool{Name: "again"}, &tasks.ToolOptions{Restartable: true}, s.slow)
	return s.tasks.Recover(ctx)
}

// callArguments are the arguments of all tools.
type callArguments struct {
	Nonce  string `json:"nonce"`
	Count  int    `json:"count,omitempty"`
	Millis int    `json:"millis,omitempty"`
}

// caller returns the subject of the principal of a call.
func caller(ctx context.Context) string {
	if p := mcp.PrincipalFrom(ctx); p != nil {
		return p.Subject
	}
	return "anonymous"
}

// answerText is the result of every tool. It names the principal that the call was made for.
func answerText(principal, nonce string) string { return principal + " " + nonce }

func (s *server) echo(ctx context.Context, in callArguments) (string, error) {
	return answerText(caller(ctx), in.Nonce), s.runs.write("run", in.Nonce)
}

func (s *server) append(ctx context.Context, in callArguments) (string, error) {
	return answerText(caller(ctx), in.Nonce), s.runs.sync("run", in.Nonce)
}

func (s *server) slow(ctx context.Context, in callArguments) (string, error) {
	if err := s.runs.write("run", in.Nonce); err != nil {
		return "", err
	}
	err := wait(ctx, in.Millis)
	if errors.Is(err, mcp.ErrCancelled) || errors.Is(err, mcp.ErrDisconnected) {
		err = errors.Join(err, s.runs.write("stopped", in.Nonce))
	}
	return answerText(caller(ctx), in.Nonce), err
}

func wait(ctx context.Context, millis int) error {
	select {
	case <-time.After(time.Duration(millis) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stream sends numbered progress notifications and log messages before its result.
func (s *server) stream(ctx context.Context, in callArguments) (string, error) {
	if err := s.runs.write("run", in.Nonce); err != nil {
		return "", err
	}
	for i := range in.Count {
		if err := wait(ctx, in.Millis); err != nil {
			return "", err
		}
		mcp.Progress(ctx, float64(i+1), float64(in.Count), answerText(caller(ctx), in.Nonce))
		mcp.Logger(ctx).Info(answerText(caller(ctx), in.Nonce), "n", i+1)
	}
	return answerText(caller(ctx), in.Nonce), nil
}

// ask asks one question. Its first step runs once for each question, the second one once for each
// accepted answer.
func (s *server) ask(ctx context.Context, in callArguments) (string, error) {
	_, err := mcp.Once(ctx, "first", func(context.Context) (bool, error) {
		return true, s.runs.sync("run", in.Nonce)
	})
	if err != nil {
		return "", err
	}
	word, err := mcp.Ask[string](ctx, "word", answerText(caller(ctx), in.Nonce), nil)
	if err != nil {
		return "", err
	}
	return answerText(caller(ctx), in.Nonce) + " " + word, s.runs.sync("answered", in.Nonce)
}

// serve serves the site and the debug endpoint until ctx ends. Then it shuts down.
func (s *server) serve(ctx context.Context, site http.Handler, handler *mcphttp.Handler) error {
	return serveBoth(ctx, s.config.Host, site, s.debug(), handler)
}

// serveBoth serves a site at a host, which passes requests to handler, and a debug endpoint until ctx
// ends. It prints their addresses. At the end handler and then the site shut down.
func serveBoth(ctx context.Context, host string, site, debug http.Handler, handler *mcphttp.Handler) error {
	public, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	private, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	front := &http.Server{Handler: site, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	back := &http.Server{Handler: debug, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- front.Serve(public) }()
	go func() { failed <- back.Serve(private) }()
	line, err := json.Marshal(announcement{public.Addr().String(), private.Addr().String()})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	_ = handler.Shutdown(ending) // an error says that calls were cancelled
	_ = front.Shutdown(ending)
	return errors.Join(front.Close(), back.Close())
}

// A usage is what a process holds.
type usage struct {
	Goroutines, Descriptors int
	Late                    time.Duration // how long the process was not scheduled
}

// debug returns the endpoint by which the parent measures the server and rotates its keys.
func (s *server) debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /usage", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(ownUsage(&s.late))
	})
	mux.HandleFunc("GET /stacks", func(w http.ResponseWriter, _ *http.Request) {
		_ = pprof.Lookup("goroutine").WriteTo(w, 1)
	})
	mux.HandleFunc("POST /rotate", func(w http.ResponseWriter, _ *http.Request) {
		keys, err := readKeys(s.config.file("state.keys"))
		if err == nil {
			err = s.mcp.ReplaceStateKeys(keys)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}
