// Command soak calls this project's SDK for a long time over all transports and revisions, with
// faults and hostile clients, and fails if an answer is wrong or something grows. See README.md in
// the parent directory.
package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"time"
)

// roleVariable selects what a process is: a server, or the soak if it is not set.
const roleVariable = "SOAK_ROLE"

func main() {
	if status, ok := serve(); ok {
		os.Exit(status)
	}
	os.Exit(exit(soakMain()))
}

// gcPercent saves processor time: the heaps are small. What is live does not depend on it.
const gcPercent = 400

// serve runs the server that the environment selects. It reports false if it selects none. In each
// process only errors are logged.
func serve() (status int, ok bool) {
	slog.SetDefault(newLogger())
	debug.SetGCPercent(gcPercent)
	switch os.Getenv(roleVariable) {
	case "serve":
		return exit(serveHTTP(os.Stdin, os.Stdout)), true
	case "stdio":
		return exit(serveStdio()), true
	}
	return 0, false
}

// reserve is the part of the calls that is planned in addition, for the time in which nothing can
// be called.
const reserve = 1.1

func soakMain() error {
	c := config{out: os.Stdout}
	flag.DurationVar(&c.duration, "duration", time.Hour, "how long to call")
	flag.Int64Var(&c.calls, "calls", 10_000_000, "how many calls to make at least")
	flag.DurationVar(&c.restart, "restart", 10*time.Minute, "the time between two restarts of the servers")
	file := flag.String("log", "", "a file for a JSON line each second")
	flag.Parse()
	var err error
	if c.program, err = os.Executable(); err != nil {
		return err
	}
	c.log = io.Discard
	if *file != "" {
		f, err := os.Create(*file)
		if err != nil {
			return err
		}
		defer f.Close()
		c.log = f
	}
	c.rate = reserve * float64(c.calls) / c.duration.Seconds()
	// A short run has a restart and several quiet points, too.
	c.restart = min(c.restart, c.duration/2)
	c.quiet = min(time.Minute, c.duration/8)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return (&soak{config: c}).run(ctx)
}
