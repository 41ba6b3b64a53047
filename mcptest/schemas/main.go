// Command schemas downloads the official JSON Schemas of the protocol into the user's cache, where
// package mcptest finds them:
//
//	go run github.com/patchbay-mcp/patchbay/mcptest/schemas@latest
//
// The files come from the specification's repository. Their digests are part of this program: other
// files are refused, and not stored. Files that are there already are not downloaded again. With
// -dir, the files go to another directory, for the variable PATCHBAY_SCHEMAS; with -source, they
// come from a mirror.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcptest/internal/specschema"
)

const (
	// timeout bounds the download of a schema, on a slow connection.
	timeout = time.Minute
	// maxSchema limits the size of a schema. The largest takes 200 KB.
	maxSchema = 4 << 20
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("schemas", flag.ExitOnError)
	dir := flags.String("dir", "", "the directory to write to (default: patchbay/schemas in the user's cache)")
	source := flags.String("source", specschema.Source, "the `URL` below which there is REVISION/schema.json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: schemas has flags only", flags.Arg(0))
	}
	if *dir == "" {
		cache, err := specschema.CacheDir()
		if err != nil {
			return fmt.Errorf("%w: set -dir", err)
		}
		*dir = cache
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	for _, f := range specschema.Files() {
		state, err := ensure(ctx, f, strings.TrimSuffix(*source, "/"), *dir)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s\n", filepath.Join(*dir, f.Name()), state)
	}
	return nil
}

// ensure downloads a schema unless the directory contains it, and returns the outcome.
func ensure(ctx context.Context, f specschema.File, source, dir string) (state string, err error) {
	name := filepath.Join(dir, f.Name())
	if old, err := os.ReadFile(name); err == nil && f.Verify(old) == nil {
		return "present", nil
	}
	text, err := download(ctx, source+"/"+f.Revision+"/schema.json")
	if err != nil {
		return "", err
	}
	if err := f.Verify(text); err != nil {
		return "", fmt.Errorf("%w: nothing was stored", err)
	}
	temp, err := os.CreateTemp(dir, f.Name()+".*") // created with mode 0600
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // fails after the rename
	if _, err := temp.Write(text); err != nil {
		temp.Close()
		return "", err
	}
	if err := temp.Close(); err != nil {
		return "", err
	}
	return "downloaded", os.Rename(temp.Name(), name)
}

func download(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: got status %s, want 200", url, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxSchema+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", url, err)
	case len(text) > maxSchema:
		return nil, fmt.Errorf("GET %s: the file has more than %d bytes", url, maxSchema)
	}
	return text, nil
}
