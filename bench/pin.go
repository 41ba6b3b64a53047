package main

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A pinning assigns one core to the measured programs and the other cores to
// the rest of the benchmark, so that they do not compete. The zero value pins
// nothing.
type pinning struct {
	measured string   // core of the measured servers or clients
	rest     []string // cores of the load, or of the server that clients call
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
	p := pinning{measured: cores[len(cores)-1], rest: cores[:len(cores)-1]}
	if exec.Command("taskset", "-acp", strings.Join(p.rest, ","), pid).Run() != nil {
		return pinning{}
	}
	runtime.GOMAXPROCS(len(p.rest))
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

// argv returns the command line of a measured program with its prefix.
func (p pinning) argv(command ...string) []string {
	if p.measured == "" {
		return command
	}
	return append([]string{"taskset", "-c", p.measured}, command...)
}

// spreadArgv returns the command line of a program that is measured on all
// cores.
func (p pinning) spreadArgv(command ...string) []string {
	if p.measured == "" {
		return command
	}
	return append([]string{"taskset", "-c", strings.Join(append(slices.Clone(p.rest), p.measured), ",")}, command...)
}

// besideArgv returns the command line of a program that a measured program
// starts and that is not measured itself.
func (p pinning) besideArgv(command ...string) []string {
	if p.measured == "" {
		return command
	}
	return append([]string{"taskset", "-c", strings.Join(p.rest, ",")}, command...)
}

// String returns a description for the report.
func (p pinning) String() string {
	if p.measured == "" {
		return "nothing pinned"
	}
	return "measured programs on core " + p.measured + ", all others on " + strings.Join(p.rest, ",")
}
