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
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// startTimeout bounds the start of a program, from exec to its announcement.
const startTimeout = 20 * time.Second

// compile builds programs of the module in a folder into a directory, with a subdirectory for each kind.
func compile(ctx context.Context, from, into, kind string, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	into = filepath.Join(into, kind) + string(filepath.Separator)
	args := []string{"build", "-o", into}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		args = append(args, "./"+kind+"/"+dir)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = from, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the programs in %s: %w", kind, err)
	}
	return nil
}

// build compiles the programs of the workloads.
func (b *bench) build(ctx context.Context, workloads []workload) error {
	programs := make(map[string][]string) // by directory
	for _, w := range workloads {
		if w.gateway != nil {
			w.gateway.needs(programs)
			continue
		}
		if w.growth != nil {
			w.growth.needs(programs, w.programsDir())
			continue
		}
		if w.observed != nil {
			programs["client"] = append(programs["client"], "observed")
			continue
		}
		if w.webhook {
			programs["client"] = append(programs["client"], "webhook")
			programs["server"] = append(programs["server"], "receiver")
			continue
		}
		if !w.clients {
			for _, s := range b.servers {
				if w.suits(s) && s.script == "" && s.name != before {
					programs[w.programsDir()] = append(programs[w.programsDir()], s.dir)
				}
			}
			continue
		}
		programs["server"] = append(programs["server"], baseline)
		for _, c := range b.clients { // with the directory of before, which is that of ours
			programs["client"] = append(programs["client"], c.dir)
		}
	}
	var errs []error
	for kind, dirs := range programs {
		errs = append(errs, compile(ctx, ".", b.bin, kind, slices.Clone(dirs)))
		if b.before == "" {
			continue
		}
		dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
			return !slices.Contains([]string{"", ours, "host"}, dir) // all kinds of programs of this project
		})
		errs = append(errs, compile(ctx, b.before, filepath.Join(b.bin, before), kind, dirs))
	}
	return errors.Join(errs...)
}

// A process is one running program.
type process struct {
	cmd     *exec.Cmd
	url     string
	meter   *rig.Meter
	in, out *os.File      // pipes to and from the program, else nil
	drained chan struct{} // closed at the end of its standard error
}

// start runs a program and waits until it is ready. With pipes, it connects to
// standard input and output of the program. The process ends with stop, or with
// ctx.
func start(ctx context.Context, name string, argv []string, pipes bool) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), drained: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	var theirs []*os.File
	if pipes {
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

// connect creates the pipes of a program and returns the program's ends.
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

// ready waits for the announcement and connects to the meter. Further output of
// the program is copied to standard error.
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
			return errors.New("program exited before it was ready")
		}
		var a rig.Announcement
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return fmt.Errorf("invalid announcement %q", line)
		}
		var err error
		p.url = a.URL
		p.meter, err = rig.DialMeter(a.Meter)
		return err
	case <-timer.C:
		return errors.New("timeout waiting for the announcement")
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
	p.cmd.Wait() // it was killed, so the error is not meaningful
}

func (p *process) closePipes() {
	if p.in != nil {
		p.in.Close()
		p.out.Close()
	}
}
