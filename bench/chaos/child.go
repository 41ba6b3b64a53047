package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// childVariable is the environment variable that makes this program the server process.
const childVariable = "PATCHBAY_CHAOS_SERVER"

const (
	startTime = 20 * time.Second                // for the server to start: the machine is shared
	exitTime  = 2*shutdownTime + 22*time.Second // also on a busy machine
)

// A child is the server process.
type child struct {
	cmd      *exec.Cmd
	stdin    io.Closer
	address  announcement
	expected atomic.Bool   // its end
	exited   chan struct{} // closed after it has ended
	err      error         // how it ended; valid after exited is closed
}

// startChild starts the server and waits until it listens.
func startChild(config serverConfig) (*child, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	return startProcess(config.Dir, childVariable+"="+string(text), config.Before...)
}

// startProcess starts this program with an environment variable, and with other words before it, and
// waits until it listens. A file in the folder gets what it prints to standard error.
func startProcess(dir, variable string, before ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "server.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	words := append(before, program)
	c := &child{cmd: exec.Command(words[0], words[1:]...), exited: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), variable)
	c.cmd.Stderr = log
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	timer := time.AfterFunc(startTime, func() { _ = c.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if !timer.Stop() && err != nil {
		err = fmt.Errorf("the server did not start within %v", startTime)
	}
	if err == nil {
		err = json.Unmarshal(line, &c.address)
	}
	if err != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		return nil, fmt.Errorf("start of the server: %w; see %s", err, log.Name())
	}
	go func() {
		c.err = c.cmd.Wait()
		_ = c.stdin.Close()
		close(c.exited)
	}()
	return c, nil
}

// kill ends the server with SIGKILL.
func (c *child) kill() {
	c.expected.Store(true)
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// terminate ends the server with SIGTERM and waits for it to exit.
func (c *child) terminate() error {
	c.expected.Store(true)
	if err := c.cmd.Process.Signal(signalTerminate); err != nil {
		return err
	}
	select {
	case <-c.exited:
		return c.err
	case <-time.After(exitTime):
		if signalQuit != nil {
			_ = c.cmd.Process.Signal(signalQuit) // its stacks are in the log
			select {
			case <-c.exited:
			case <-time.After(time.Second):
			}
		}
		c.kill()
		return fmt.Errorf("the server has not exited %v after SIGTERM; see the stacks in server.log", exitTime)
	}
}

// crashed returns the error of a server that has ended by itself, or nil.
func (c *child) crashed() error {
	select {
	case <-c.exited:
		if !c.expected.Load() {
			return fmt.Errorf("the server has exited: %w", c.err)
		}
	default:
	}
	return nil
}

var debugClient = &http.Client{Timeout: exitTime, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the body of a page of the debug endpoint.
func (c *child) get(path string) (string, error) {
	return readBody(debugClient.Get("http://" + c.address.Debug + path))
}

// post makes the server do something.
func (c *child) post(path string) error {
	text, err := readBody(debugClient.Post("http://"+c.address.Debug+path, "text/plain", nil))
	if err == nil && text != "" {
		err = errors.New(text)
	}
	return err
}

func readBody(res *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func (c *child) usage() (u usage, err error) {
	body, err := c.get("/usage")
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal([]byte(body), &u)
}

// rotate makes the server read its keys again.
func (c *child) rotate() error { return c.post("/rotate") }
