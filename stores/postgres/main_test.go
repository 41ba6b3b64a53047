package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

const (
	// patience limits how long a test waits for a server. A busy machine takes seconds.
	patience = 30 * time.Second
	// password is the password of the user postgres of each server.
	password = "pa55word"
)

// shared is the server of the tests that do not stop it. It is nil if the program is missing.
var shared *server

func TestMain(m *testing.M) {
	if serveTasks() || putWebhooks() {
		return
	}
	os.Exit(testhome.Main(m, func(m *testing.M) int {
		var err error
		if shared, err = newServer(); err != nil {
			fmt.Fprintln(os.Stderr, "postgres:", err)
			return 1
		}
		if shared != nil {
			defer shared.remove()
		}
		return mcptest.Main(m)
	}))
}

// A server is a process of postgres with an own directory.
type server struct {
	programs, dir, port string
	args                []string // besides the arguments of every server
	process             *exec.Cmd
	output              bytes.Buffer
}

// newServer starts a server on a free port. It returns nil if the program is missing, which is an
// error in CI on Linux: .ci/run installs the program.
func newServer(args ...string) (*server, error) {
	programs := findPrograms()
	if programs == "" && os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
		return nil, fmt.Errorf("no initdb on the PATH or in /usr/lib/postgresql")
	}
	if programs == "" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "patchbay-postgres-")
	if err != nil {
		return nil, err
	}
	s := &server{programs: programs, dir: dir, args: args}
	if err := s.initialize(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	for attempt := 0; ; attempt++ { // another program may take the port first
		s.port = freePort()
		if err = s.start(); err == nil || attempt == 3 {
			return s, err
		}
	}
}

// findPrograms returns the directory of initdb and postgres, or "". Debian does not put initdb on
// the PATH.
func findPrograms() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(slices.Max(found))
}

// initialize creates the files of the server. The server refuses to run as root: root gives the
// files to another user.
func (s *server) initialize() error {
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return err
	}
	if err := giveToServer(s.dir, secret); err != nil {
		return err
	}
	out, err := s.command("initdb", "--username=postgres", "--auth=scram-sha-256", "--pwfile="+secret,
		"--no-sync", "--encoding=UTF8", "--locale=C", s.data()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// giveToServer makes the user of the server own files, if the caller is root.
func giveToServer(paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	for _, path := range paths {
		err = errors.Join(err, os.Chown(path, uid, gid))
	}
	return err
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command that runs a program of the server, as the user postgres if the caller is
// root.
func (s *server) command(program string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(s.programs, program)}, args...)
	if os.Geteuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Dir = s.dir
	return c
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// start starts the server and waits until it accepts connections. The data need not survive a
// failure of the machine.
func (s *server) start() error {
	s.output.Reset()
	s.process = s.command("postgres", append([]string{"-D", s.data(), "-p", s.port, "-h", "127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"}, s.args...)...)
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	if err := s.process.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		c, err := pgx.Connect(ctx, s.url())
		if err == nil {
			err = c.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return fmt.Errorf("no connection: %w: %s", err, s.output.String())
		}
		<-time.After(20 * time.Millisecond)
	}
}

// stop ends all processes of the server at once, without a checkpoint.
func (s *server) stop() {
	_ = s.process.Process.Signal(syscall.SIGQUIT)
	_ = s.process.Wait()
}

func (s *server) remove() {
	s.stop()
	_ = os.RemoveAll(s.dir)
}

func (s *server) url() string {
	return "postgres://postgres:" + password + "@127.0.0.1:" + s.port + "/postgres"
}

// need returns the shared server, or skips the test.
func need(t testing.TB) *server {
	t.Helper()
	if shared == nil {
		t.Skip("postgres is not installed")
	}
	return shared
}

// startServer starts a server for one test.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	need(t)
	s, err := newServer(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// calm are options for tests whose subject is not time: a busy machine must not make them fail.
func calm() *postgres.Options { return &postgres.Options{Timeout: patience} }

func open(t testing.TB, url string, opts *postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var schemas atomic.Int64

// newSchema returns options with a schema of its own.
func newSchema() *postgres.Options {
	opts := calm()
	opts.Schema = fmt.Sprint("Test ", schemas.Add(1))
	return opts
}

// openTwo opens two pools of a new store.
func openTwo(t testing.TB) (a, b *postgres.Store) {
	t.Helper()
	opts := newSchema()
	url := need(t).url()
	return open(t, url, opts), open(t, url, opts)
}

// sql runs a statement whose word {schema} stands for the schema, and returns the first column of
// each row as text.
func sql(t testing.TB, schema, statement string, args ...any) (values []string) {
	t.Helper()
	return sqlAt(t, need(t).url(), schema, statement, args...)
}

func sqlAt(t testing.TB, url, schema, statement string, args ...any) (values []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	statement = strings.ReplaceAll(statement, "{schema}", pgx.Identifier{schema}.Sanitize())
	rows, err := c.Query(ctx, statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		all, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, fmt.Sprint(all[0]))
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return values
}

// await polls until done returns no error.
func await(t testing.TB, done func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for err := done(); err != nil; err = done() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}
