package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// startTimeout bounds the start of a server, from exec to its announcement.
const startTimeout = 20 * time.Second

// build compiles the programs of the servers into a directory. It must run in
// the module's own directory, as go run does.
func build(ctx context.Context, into string, servers []server) error {
	done := make(map[string]bool)
	for _, s := range servers {
		if done[s.dir] {
			continue
		}
		done[s.dir] = true
		cmd := exec.CommandContext(ctx, "go", "build", "-o", into+string(filepath.Separator), "./server/"+s.dir)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build server %s: %w", s.name, err)
		}
	}
	return nil
}

// A process is one running server.
type process struct {
	cmd     *exec.Cmd
	url     string
	meter   *rig.Meter
	in, out *os.File      // to and from a server on stdio, else nil
	drained chan struct{} // closed once its standard error has ended
}

// start runs a server program and waits until it is ready. The process ends
// with stop, or with ctx.
func start(ctx context.Context, name string, argv []string, stdio bool) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), drained: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var theirs []*os.File
	if stdio {
		if theirs, err = p.connect(); err != nil {
			return nil, err
		}
	}
	err = p.cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		p.closePipes()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := p.ready(name, stderr); err != nil {
		p.stop()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// connect makes the pipes of a server on stdio and returns its ends of them.
func (p *process) connect() ([]*os.File, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		in.Close()
		to.Close()
		return nil, err
	}
	p.in, p.out = to, from
	p.cmd.Stdin, p.cmd.Stdout = in, out
	return []*os.File{in, out}, nil
}

// ready waits for the announcement and connects to the meter. What else the
// server has to say goes to standard error.
func (p *process) ready(name string, stderr io.Reader) error {
	announced := make(chan string, 1)
	go func() {
		defer close(p.drained)
		defer close(announced)
		lines := bufio.NewScanner(stderr)
		if lines.Scan() {
			announced <- lines.Text()
		}
		for lines.Scan() {
			fmt.Fprintf(os.Stderr, "[%s] %s\n", name, lines.Text())
		}
		io.Copy(io.Discard, stderr) // after a line too long to scan
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case line, ok := <-announced:
		if !ok {
			return errors.New("server ended")
		}
		var a rig.Announcement
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return fmt.Errorf("server says %q", line)
		}
		var err error
		p.url = a.URL
		p.meter, err = rig.DialMeter(a.Meter)
		return err
	case <-timer.C:
		return errors.New("server is not ready in time")
	}
}

// stop ends the process and waits for it.
func (p *process) stop() {
	if p.meter != nil {
		p.meter.Close()
	}
	p.closePipes()
	p.cmd.Process.Kill()
	<-p.drained
	p.cmd.Wait() // it was killed, so its error says nothing
}

func (p *process) closePipes() {
	if p.in != nil {
		p.in.Close()
		p.out.Close()
	}
}
