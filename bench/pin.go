package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// A pinning gives servers one core and the load the others, so that neither
// takes time from the other. The zero value pins nothing.
type pinning struct {
	server string   // core of the servers
	load   []string // cores of the load
}

// pin moves this process to its cores. Without taskset, or with one core,
// nothing is pinned.
func pin() pinning {
	pid := strconv.Itoa(os.Getpid())
	out, err := exec.Command("taskset", "-cp", pid).Output()
	if err != nil {
		return pinning{}
	}
	_, list, _ := strings.Cut(string(out), ": ")
	cores := parseCores(strings.TrimSpace(list))
	if len(cores) < 2 {
		return pinning{}
	}
	p := pinning{server: cores[len(cores)-1], load: cores[:len(cores)-1]}
	if exec.Command("taskset", "-acp", strings.Join(p.load, ","), pid).Run() != nil {
		return pinning{}
	}
	runtime.GOMAXPROCS(len(p.load))
	return p
}

// parseCores reads a list such as 0-3,6.
func parseCores(list string) []string {
	var cores []string
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil {
			return nil
		}
		for core := from; core <= to; core++ {
			cores = append(cores, strconv.Itoa(core))
		}
	}
	return cores
}

// argv prefixes a server's command line.
func (p pinning) argv(command ...string) []string {
	if p.server == "" {
		return command
	}
	return append([]string{"taskset", "-c", p.server}, command...)
}

// String tells a reader of the report.
func (p pinning) String() string {
	if p.server == "" {
		return "nothing pinned"
	}
	return "server on core " + p.server + ", load on " + strings.Join(p.load, ",")
}
