package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// startTime limits how long redis-server may take to listen.
const startTime = 30 * time.Second

// A redisServer is a redis-server of this program, with an append-only file.
type redisServer struct {
	process *exec.Cmd
	dir     string
	address string
	conn    net.Conn
	lines   *bufio.Reader
}

func startRedis() (*redisServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close()
	dir, err := os.MkdirTemp("", "patchbay-replicas-")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	r := &redisServer{dir: dir, address: address, process: exec.Command("redis-server", "--bind", "127.0.0.1",
		"--port", port, "--dir", dir, "--appendonly", "yes", "--save", "")}
	if err := r.process.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for deadline := time.Now().Add(startTime); ; time.Sleep(10 * time.Millisecond) {
		if r.conn, err = net.Dial("tcp", address); err == nil {
			r.lines = bufio.NewReader(r.conn)
			return r, nil
		}
		if time.Now().After(deadline) {
			r.stop()
			return nil, err
		}
	}
}

func (r *redisServer) url() string { return "redis://" + r.address }

func (r *redisServer) stop() {
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	_ = os.RemoveAll(r.dir)
}

// info returns a section of INFO.
func (r *redisServer) info(section string) (map[string]string, error) {
	if _, err := fmt.Fprintf(r.conn, "INFO %s\r\n", section); err != nil {
		return nil, err
	}
	head, err := r.lines.ReadString('\n')
	if err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return nil, fmt.Errorf("INFO returned %q", head)
	}
	text := make([]byte, size+2)
	if _, err := io.ReadFull(r.lines, text); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, nil
}

// usage is the work of Redis since its start: CPU of its main thread, and commands, of which scripts
// send several.
type usage struct {
	cpu      time.Duration
	commands float64
	memory   float64 // bytes at the moment
}

func (r *redisServer) usage() (u usage, err error) {
	all, err := r.info("everything")
	if err != nil {
		return u, err
	}
	number := func(name string) float64 {
		f, failed := strconv.ParseFloat(all[name], 64)
		err = errors.Join(err, failed)
		return f
	}
	u.cpu = time.Duration((number("used_cpu_user_main_thread") + number("used_cpu_sys_main_thread")) * 1e9)
	u.memory = number("used_memory")
	u.commands = number("total_commands_processed")
	return u, err
}
