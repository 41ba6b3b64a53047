package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// postgresPassword is the password of the user postgres of each server.
const postgresPassword = "p@ss/w:rd"

// A postgresServer is a PostgreSQL server, which the test may kill and start again.
type postgresServer struct {
	*process
	t              *testing.T
	programs, data string
	addr           string
	store          string // the password is the variable PGPASSWORD_TEST
}

func startPostgres(t *testing.T) *postgresServer {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	switch {
	case len(found) == 0 && os.Getenv("CI") == "true":
		t.Fatal("initdb is not installed") // .ci/run installs the program
	case len(found) == 0:
		t.Skip("initdb is not installed")
	}
	dir, err := os.MkdirTemp("", "patchbay-postgres-") // the user of the server must reach the folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &postgresServer{t: t, programs: filepath.Dir(found[0]), data: filepath.Join(dir, "data"),
		addr: freeport.Addr(t)}
	secret := filepath.Join(dir, "password")
	err = os.WriteFile(secret, []byte(postgresPassword), 0o600)
	if os.Geteuid() == 0 { // the server refuses to run as root
		owner, failed := user.Lookup("postgres")
		if failed != nil {
			t.Fatal(failed)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		err = errors.Join(err, os.Chown(dir, uid, gid), os.Chown(secret, uid, gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.program("initdb", "--username=postgres", "--auth=scram-sha-256", "--pwfile="+secret, "--no-sync",
		"--encoding=UTF8", "--locale=C", s.data).CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	t.Setenv("PGPASSWORD_TEST", postgresPassword)
	s.store = "postgres://postgres:${PGPASSWORD_TEST}@" + s.addr + "/postgres"
	s.start()
	return s
}

// program returns a command of PostgreSQL, which runs as another user if the test runs as root.
func (s *postgresServer) program(name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(s.programs, name)}, args...)
	if os.Geteuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Dir = filepath.Dir(s.data)
	return c
}

// start starts the server, and waits until it accepts connections.
func (s *postgresServer) start() {
	s.t.Helper()
	_, port, _ := strings.Cut(s.addr, ":")
	s.process = startCommand(s.t, s.program("postgres", "-D", s.data, "-p", port, "-h", "127.0.0.1", "-c",
		"unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"))
	eventually(s.t, func() error { return s.program("pg_isready", "-h", "127.0.0.1", "-p", port).Run() })
}

// stop ends all processes of the server at once, without a checkpoint.
func (s *postgresServer) stop() {
	s.t.Helper()
	s.signal(syscall.SIGQUIT)
	<-s.exited
	s.exited <- nil
}

func (s *postgresServer) sql(statement string) {
	s.t.Helper()
	_, port, _ := strings.Cut(s.addr, ":")
	c := s.program("psql", "-h", "127.0.0.1", "-p", port, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-c", statement)
	c.Env = append(os.Environ(), "PGPASSWORD="+postgresPassword)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", statement, err, out)
	}
}

// awaitStores waits until /readyz?verbose of each process contains the states of the stores, such as
// "redis available, postgres unavailable". Each process is ready meanwhile.
func (f *fleet) awaitStores(t *testing.T, want string) {
	t.Helper()
	for _, ops := range f.ops {
		eventually(t, func() error {
			body, err := getURL("http://" + ops + "/readyz?verbose")
			if err != nil {
				return err
			}
			var report struct {
				Details struct {
					Stores []struct{ Kind, State string }
				}
			}
			err = json.Unmarshal([]byte(body), &report)
			var all []string
			for _, s := range report.Details.Stores {
				all = append(all, s.Kind+" "+s.State)
			}
			if got := strings.Join(all, ", "); err == nil && got != want {
				err = fmt.Errorf("the readiness is %s, want %s", body, want)
			}
			return err
		})
	}
}

// callAdd calls a tool that asks no question.
func (c *fleetClient) callAdd(t *testing.T) error {
	_, err := mcp.CallTool[int](t.Context(), c.Client, "add", map[string]any{"a": 1, "b": 2})
	return err
}

// Three gateways keep sessions in Redis, and keys, pins, grants and approvals in PostgreSQL. Processes are killed,
// PostgreSQL is restarted, and Redis loses its data.
func TestGatewaysWithRedisAndPostgres(t *testing.T) {
	freshState(t)
	redis, sessions := startRedis(t, "--appendonly", "no")
	durable := startPostgres(t)
	server := freeport.Addr(t)
	serveAt(t, server, "--tasks", "memory") // one process: an answer reaches the process that asked
	file := filepath.Join(t.TempDir(), "mcp.json")
	config := fmt.Sprintf(`{"mcpServers": {"demo": {"url": "http://%s/mcp"}}, "patchbay": {"store": [%q, %q],
		"approve": ["console"], "policy": {"rules": [{"name": "counts", "on": ["call"], "do": "ask",
		"when": "tool.name == 'increment'", "reason": "counts"}]}}}`, server, sessions, durable.store)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, "gateway", "--config", file)
	for _, p := range f.processes {
		if got := p.stderr.String(); !strings.Contains(got, "store: redis at "+strings.TrimPrefix(sessions, "redis://")+
			", postgres at "+durable.addr+"\n") || strings.Contains(got, postgresPassword) {
			t.Errorf("a gateway printed %q, want a line with the stores", got)
		}
	}
	control := func(args ...string) string {
		return mustRun(t, append(append([]string{"gateway"}, args...), "--config", file)...)
	}
	key := func(name string) http.Header {
		var created struct{ Key string }
		out := control("keys", "new", name, "--all-servers", "--json")
		if err := json.Unmarshal([]byte(out), &created); err != nil {
			t.Fatal(err)
		}
		return http.Header{"Authorization": {"Bearer " + created.Key}}
	}
	ann := key("ann")
	var clients []*fleetClient
	for _, revision := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		clients = append(clients, f.client(t, revision, ann))
	}
	all := func() {
		t.Helper()
		for _, c := range clients {
			eventually(t, c.greet) // a connection of each process may fail once after a restart
			c.greetTimes(t, 4)
		}
	}
	all()
	f.awaitStores(t, "redis available, postgres available")

	count := func(c *fleetClient) error {
		_, err := mcp.CallTool[int](t.Context(), c.Client, "increment", map[string]any{})
		return err
	}
	called := make(chan error, 1)
	go func() { called <- count(clients[1]) }()
	var waiting struct{ Pending []struct{ ID string } }
	eventually(t, func() error {
		err := json.Unmarshal([]byte(control("pending", "--json")), &waiting)
		if err == nil && len(waiting.Pending) != 1 {
			err = fmt.Errorf("%d requests wait, want 1", len(waiting.Pending))
		}
		return err
	})
	control("approve", waiting.Pending[0].ID, "--always", "--yes")
	if err := <-called; err != nil {
		t.Errorf("the approved call: %v", err)
	}

	f.processes[1].kill()
	all()
	f.processes[1] = f.processes[1].again()
	f.waitReady(t, 1)
	for _, c := range clients {
		for range 3 { // the grant is valid at each process
			if err := count(c); err != nil {
				t.Error(err)
			}
		}
	}

	durable.stop()
	f.awaitStores(t, "redis available, postgres unavailable")
	for _, c := range clients { // the processes know the keys and the approved definitions
		if err := c.callAdd(t); err != nil {
			t.Errorf("%s: a call without PostgreSQL: %v", c.Revision(), err)
		}
	}
	durable.start()
	f.awaitStores(t, "redis available, postgres available")
	bob := key("bob")
	for _, addr := range f.addrs { // a process reads the keys within a second of an outage
		eventually(t, func() error { return unavailable(t, "http://"+addr+"/mcp", bob) })
	}
	f.client(t, "2025-11-25", bob).greetTimes(t, 4)
	all()

	redis.kill()
	_, stderr, status := run(t, "gateway", "keys", "revoke", "bob", "--config", file)
	if status != 0 || !strings.Contains(stderr, "warning: without Redis") {
		t.Errorf("keys revoke without Redis: status %d, %s, want a warning", status, stderr)
	}
	redis.again() // without its data
	f.awaitStores(t, "redis available, postgres available")
	for i, p := range f.processes {
		p.kill()
		f.processes[i] = p.again()
		f.waitReady(t, i)
	}
	if got := control("keys", "list"); strings.Contains(got, "bob") || !strings.Contains(got, "ann") {
		t.Errorf("the keys are %s, want only ann", got)
	}
	later := f.client(t, "2025-11-25", ann)
	later.greetTimes(t, 4)
	for range 3 {
		if err := count(later); err != nil {
			t.Errorf("the grant after Redis lost its data: %v", err)
		}
	}
	control("keys", "revoke", "ann")
	eventually(t, func() error {
		if later.callAdd(t) == nil {
			return errors.New("a revoked key was accepted")
		}
		return nil
	})
}

// Tasks and their results are in PostgreSQL: they survive the end of all processes, and a loss of Redis.
func TestTasksInPostgresSurviveAllProcesses(t *testing.T) {
	freshState(t)
	redis, sessions := startRedis(t, "--appendonly", "no")
	durable := startPostgres(t)
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", sessions, "--store", durable.store)
	client := f.client(t, "2025-11-25", nil)
	client.greetTimes(t, 6)
	done := mustRun(t, "call", "--task", f.url, "crunch", "seconds=1")
	if out := mustRun(t, "task", "watch", f.url, done); !strings.Contains(out, "42") {
		t.Errorf("the result of the task is %s", out)
	}
	waiting := mustRun(t, "call", "--task", f.url, "publish", "title=Waiting")
	waitForStatus(t, f.url, waiting, "input_required")

	durable.stop()
	f.awaitStores(t, "redis available, postgres unavailable")
	if err := client.callAdd(t); err != nil {
		t.Errorf("a call without PostgreSQL: %v", err)
	}
	if _, stderr, status := run(t, "task", "get", f.url, done); status == 0 {
		t.Errorf("a task without PostgreSQL: %s, want an error", stderr)
	}
	durable.start()
	f.awaitStores(t, "redis available, postgres available")
	redis.kill()
	redis.again() // without its data
	f.awaitStores(t, "redis available, postgres available")
	for i, p := range f.processes {
		p.kill()
		f.processes[i] = p.again()
		f.waitReady(t, i)
	}
	f.awaitStores(t, "redis available, postgres available")
	if out := mustRun(t, "task", "get", f.url, done); !strings.Contains(out, "completed") {
		t.Errorf("the task after the end of all processes: %s", out)
	}
	mustRun(t, "task", "answer", f.url, waiting, "publish=true", "note=late")
	if out := mustRun(t, "task", "watch", f.url, waiting); !strings.Contains(out, `"note":"late"`) {
		t.Errorf("the answered task: %s, want the note", out)
	}
}

// PostgreSQL alone carries the state of clients of 2026-07-28, and each process says that sessions are not shared. Old
// processes go on beside a new version of the tables; they do not start again.
func TestProcessesWithPostgresAlone(t *testing.T) {
	freshState(t)
	durable := startPostgres(t)
	t.Setenv("ADDR_TEST", "other.invalid:1")
	host, port, _ := strings.Cut(durable.addr, ":")
	durable.store = "POSTGRES://postgres:${PGPASSWORD_TEST}@${ADDR_TEST}/postgres?application_name=a@b&host=" + host +
		"&port=" + port // the query overrides the address
	f := startFleet(t, "serve", "--insecure-no-auth", "--quiet", "--store", durable.store)
	if got := f.processes[0].stderr.String(); !strings.Contains(got, "store: postgres at "+durable.addr+
		"; each process keeps sessions") {
		t.Errorf("the process printed %q, want what it does not share", got)
	}
	f.awaitStores(t, "postgres available")
	durable.sql("ALTER SYSTEM SET default_transaction_read_only = on")
	durable.sql("SELECT pg_reload_conf()")
	f.awaitStores(t, "postgres unavailable")
	durable.sql("ALTER SYSTEM RESET default_transaction_read_only")
	durable.sql("SELECT pg_reload_conf()")
	f.awaitStores(t, "postgres available")
	c := f.client(t, "2026-07-28", nil)
	c.greetTimes(t, 9) // each answer reaches another process than its question
	for want := 1; want <= 6; want++ {
		got, err := mcp.CallTool[int](t.Context(), c.Client, "increment", map[string]any{})
		if err != nil || got != want {
			t.Errorf("increment returned %d, %v, want %d", got, err, want)
		}
	}
	durable.sql("UPDATE patchbay.version SET version = version + 1")
	c.greetTimes(t, 3)
	_, stderr, status := run(t, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0", "--store", durable.store)
	if status != 3 || !strings.Contains(stderr, "use a newer program") || !strings.Contains(stderr, "doctor store") {
		t.Errorf("serve with newer tables: status %d, %s", status, stderr)
	}
	out, _, status := run(t, "doctor", "store", durable.store)
	if status != 3 || !strings.Contains(out, "FAIL  tables") || strings.Contains(out, postgresPassword) {
		t.Errorf("doctor store: status %d, %s", status, out)
	}
}

func TestDoctorExaminesPostgres(t *testing.T) {
	freshState(t)
	durable := startPostgres(t)
	out := mustRun(t, "doctor", "store", "--json", durable.store)
	var report struct {
		Target string
		Checks []struct{ Name, Status string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range report.Checks {
		names = append(names, c.Name)
	}
	want := []string{"url", "network", "tls", "login", "version", "tables", "rights", "durability", "connections",
		"latency", "clock"}
	if report.Target != durable.addr || !slices.Equal(names, want) || strings.Contains(out, postgresPassword) {
		t.Errorf("got %s, want the checks %q of %s without the password", out, want, durable.addr)
	}
	t.Setenv("PGPASSWORD_TEST", "wrong")
	out, _, status := run(t, "doctor", "store", durable.store)
	if status != 3 || !strings.Contains(out, "FAIL  login") || !strings.Contains(out, "skipped") {
		t.Errorf("a wrong password: status %d, %s", status, out)
	}
}

// unavailable returns an error while a gateway answers that it cannot read the keys.
func unavailable(t *testing.T, url string, header http.Header) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errors.New(resp.Status)
	}
	return nil
}
