package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// tasksPostgres is the value of the flag tasks for tasks in PostgreSQL.
const tasksPostgres = "postgres"

// A postgresServer is a process of postgres with a folder of its own.
type postgresServer struct {
	programs, dir, host, port string
	cmd                       *exec.Cmd
	clock                     *clock // nil for that of the machine
}

// startPostgres starts a server with the programs in the PATH or where Debian installs them. The program
// refuses to run as root, which gives the files to the user postgres.
func startPostgres(host string, clocks bool) (p *postgresServer, err error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = []string{path}
	}
	if len(found) == 0 {
		return nil, errors.New("no initdb on the PATH or in /usr/lib/postgresql")
	}
	p = &postgresServer{programs: filepath.Dir(slices.Max(found)), host: host}
	if p.dir, err = os.MkdirTemp("", "chaos-postgres"); err != nil { // another user cannot enter the usual folder
		return nil, err
	}
	_, p.port, _ = net.SplitHostPort(freeAddress(host))
	err = p.initialize()
	if err == nil && clocks {
		p.clock, err = newClock(filepath.Join(p.dir, "clock"))
	}
	if err == nil {
		err = p.start()
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

func (p *postgresServer) data() string { return filepath.Join(p.dir, "data") }

func (p *postgresServer) initialize() error {
	if os.Geteuid() == 0 {
		owner, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(p.dir, uid, gid); err != nil {
			return err
		}
	}
	out, err := p.command("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C",
		p.data()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	access := fmt.Sprintf("host all all %s/8 trust\n", p.host)
	return os.WriteFile(filepath.Join(p.data(), "pg_hba.conf"), []byte(access), 0o600)
}

// command returns a command that runs a program of the server, as the user postgres if the caller is
// root.
func (p *postgresServer) command(program string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(p.programs, program)}, args...)
	if os.Geteuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Dir = p.dir
	return c
}

// start starts the server and waits until it accepts connections. A kill of the process loses nothing.
func (p *postgresServer) start() error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = p.command("postgres", "-D", p.data(), "-p", p.port, "-h", p.host, "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "shared_buffers=16MB")
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.clock.environment(), log, log
	if err := p.cmd.Start(); err != nil {
		return err
	}
	return waitUntil(startTime, func() error { return p.query(nil, "SELECT 1") })
}

// query runs a statement. result points to the first column of the first row, unless it is nil.
func (p *postgresServer) query(result any, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, p.url())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if result == nil {
		_, err = c.Exec(ctx, statement)
		return err
	}
	return c.QueryRow(ctx, statement).Scan(result)
}

func (p *postgresServer) url() string {
	return "postgres://postgres@" + net.JoinHostPort(p.host, p.port) + "/postgres?connect_timeout=5"
}

// stop ends all processes of the server at once, without a checkpoint.
func (p *postgresServer) stop() error {
	if p.cmd == nil || signalQuit == nil {
		return nil
	}
	err := p.cmd.Process.Signal(signalQuit)
	_ = p.cmd.Wait() // the error is the signal
	return err
}

func (p *postgresServer) remove() {
	_ = p.stop()
	_ = os.RemoveAll(p.dir)
}

// postgresFaults are the faults of the store of tasks.
var postgresFaults = []faultKind{
	{"PostgreSQL killed and restarted", "postgres", (*nemesis).restartPostgres},
	{"connections to PostgreSQL closed", "", (*nemesis).closePostgres},
	{"tables of PostgreSQL locked", "", (*nemesis).lockPostgres},
}

func (n *nemesis) restartPostgres(_ *rand.Rand, d time.Duration) error {
	err := n.rows.stop()
	time.Sleep(d)
	return errors.Join(err, n.rows.start())
}

func (n *nemesis) closePostgres(*rand.Rand, time.Duration) error {
	// An error says that another fault has ended the server.
	_ = n.rows.query(nil, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
		"WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
	return nil
}

// lockPostgres stalls all operations for up to 5 seconds.
func (n *nemesis) lockPostgres(r *rand.Rand, _ time.Duration) error {
	d := within(r, maxRedisStop)
	_ = n.rows.query(nil, fmt.Sprintf("BEGIN; LOCK TABLE patchbay.tasks IN ACCESS EXCLUSIVE MODE; "+
		"SELECT pg_sleep(%f); COMMIT", d.Seconds())) // an error says that another fault has ended the server
	return nil
}

// leftTasks returns the tasks that the store contains.
func (p *postgresServer) leftTasks() (tasks []string, err error) {
	const all = "SELECT coalesce(array_agg('task ' || encode(id, 'escape')), '{}') FROM patchbay.tasks"
	return tasks, p.query(&tasks, all)
}
