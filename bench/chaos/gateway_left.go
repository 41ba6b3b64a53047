//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is a running process of an upstream.
type process struct {
	pid    int
	config upstreamConfig
}

func (s *gatewayRun) processes() []process { return processes(s.dir) }

// processes returns the running processes of the upstreams of a run. It needs /proc.
func processes(dir string) (all []process) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		environment, err := os.ReadFile(name)
		if err != nil {
			continue // of another user, or it has ended
		}
		for variable := range bytes.SplitSeq(environment, []byte{0}) {
			text, ok := bytes.CutPrefix(variable, []byte(upstreamVariable+"="))
			p := process{}
			if !ok || json.Unmarshal(text, &p.config) != nil || p.config.Dir != dir {
				continue
			}
			p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
			all = append(all, p)
		}
	}
	return all
}

// guards returns the processes of a gateway that end its upstreams if it is killed, and children how
// many processes it has started that it has not waited for, these included.
func guards(gateway int) (pids []int, children int) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(stat), ") ") // then the state and the parent
		fields := strings.Fields(after)
		if len(fields) < 2 || fields[1] != strconv.Itoa(gateway) {
			continue
		}
		children++
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if isGuard(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, children
}

func isGuard(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return bytes.Contains(line, []byte("mcp-guard"))
}

// noteGuards notes the guard processes of the gateway, which must not outlive it.
func (s *gatewayRun) noteGuards() {
	pids, _ := guards(s.gateway().cmd.Process.Pid)
	for _, pid := range pids {
		s.guards[pid] = s.generation
	}
}

// leftGuards returns the guard processes of earlier gateways.
func (s *gatewayRun) leftGuards() (left []process) {
	for pid, generation := range s.guards {
		switch {
		case !isGuard(pid):
			delete(s.guards, pid)
		case generation != s.generation:
			left = append(left, process{pid, upstreamConfig{Name: "guard", Generation: generation}})
		}
	}
	return left
}

func (s *gatewayRun) signal(upstream string, signal syscall.Signal) {
	signalUpstream(s.dir, upstream, signal)
}

// signalUpstream sends a signal to all processes of an upstream, without those that it has started.
func signalUpstream(dir, upstream string, signal syscall.Signal) {
	for _, p := range processes(dir) {
		if p.config.Name == upstream && p.config.Parent == 0 {
			_ = syscall.Kill(p.pid, signal) // it may have ended
		}
	}
}

// An orphan is a process of an upstream whose gateway has ended. The generation is that of the gateway.
type orphan struct{ pid, generation int }

// orphanTime is how long the processes of upstreams may outlive their gateway.
const orphanTime = 8 * time.Second

// checkOrphans checks that the processes of gateways that were killed end, and those that an upstream
// has started which has ended.
func (s *gatewayRun) checkOrphans() (broken []violation) {
	all := append(s.processes(), s.leftGuards()...)
	for _, p := range all {
		lives := func(q process) bool { return q.pid == p.config.Parent }
		alone := p.config.Parent != 0 && !slices.ContainsFunc(all, lives)
		if p.config.HTTP || p.config.Generation == s.generation && !alone {
			continue
		}
		key := orphan{p.pid, p.config.Generation}
		since, known := s.orphans[key]
		if !known {
			s.orphans[key] = time.Now()
			continue
		}
		if time.Since(since) > orphanTime {
			s.orphans[key] = time.Now()
			broken = append(broken, violation{"residue: a process has outlived its gateway or upstream", []string{
				fmt.Sprintf("%+v, for %v, the gateway is number %d", p, time.Since(since), s.generation)}})
		}
	}
	return broken
}
