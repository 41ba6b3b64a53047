// Command patchbay runs a demo server of the Model Context Protocol.
//
//	patchbay serve            serve on HTTP, at a loopback address
//	patchbay serve --stdio    serve on standard input and output
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

const usage = `patchbay: the Model Context Protocol, in every revision

Usage:
  patchbay serve [--addr 127.0.0.1:8765]   serve the demo server on HTTP
  patchbay serve --stdio                   serve it on standard input and output
  patchbay version                         print the version
`

func main() { os.Exit(exitCode(os.Args[1:], os.Stdout, os.Stderr)) }

// exitCode runs the command and gives the status to exit with.
func exitCode(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, args, stdout, stderr)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return exitUsage
	}
	fmt.Fprintln(stderr, "patchbay:", err)
	return exitFailure
}

// errUsage says that the command line was wrong and that the user has been told.
var errUsage = errors.New("wrong command line")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return errUsage
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:], stdout, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, "patchbay", version())
		return nil
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return nil
	}
	fmt.Fprintf(stderr, "patchbay: unknown command %q\n\n%s", args[0], usage)
	return errUsage
}

// newFlags gives the flags of a command, which print to stderr.
func newFlags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("patchbay "+name, flag.ContinueOnError)
	f.SetOutput(stderr)
	return f
}
