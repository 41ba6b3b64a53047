// Package migrate tests the programs of the migration guides: the same server and client with each SDK.
package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	mcpgoserver "github.com/mark3labs/mcp-go/server"

	"github.com/patchbay-mcp/patchbay/bench/migrate/gosdk"
	"github.com/patchbay-mcp/patchbay/bench/migrate/mcpgo"
	"github.com/patchbay-mcp/patchbay/bench/migrate/patchbay"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

var programs = map[string]struct {
	serve    func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error
	forecast func(ctx context.Context, command string) ([]int, error)
}{
	"patchbay": {func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return patchbay.NewServer().Run(ctx, mcp.NewStreamConn(r, w, nil))
	}, patchbay.Forecast},
	"gosdk": {func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return gosdk.NewServer().Run(ctx, &sdk.IOTransport{Reader: r, Writer: w})
	}, gosdk.Forecast},
	"mcpgo": {func(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
		return mcpgoserver.NewStdioServer(mcpgo.NewServer()).Listen(ctx, r, w)
	}, mcpgo.Forecast},
}

// TestMain serves on standard input and output if it runs by the name of a program, for the clients.
func TestMain(m *testing.M) {
	if program, ok := programs[filepath.Base(os.Args[0])]; ok {
		if err := program.serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(testhome.Main(m, (*testing.M).Run))
}

// TestServersAreTheSame calls each server with one client, in a session.
func TestServersAreTheSame(t *testing.T) {
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			fromClient, toServer := io.Pipe()
			fromServer, toClient := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- program.serve(t.Context(), fromClient, toClient) }()
			answered := mcp.ElicitAccept
			c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(fromServer, toServer, nil)),
				&mcp.ClientOptions{Revision: "2025-11-25", Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: answered, Content: json.RawMessage(`{"value":3}`)}, nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			wantSteps := 3
			if name == "mcpgo" {
				wantSteps = 0 // it may send the result before them
			}
			check(t, c, wantSteps)
			answered = mcp.ElicitDecline
			if got, err := mcp.CallTool[string](t.Context(), c, "book", map[string]any{"city": "Oslo"}); err != nil || got != "Nothing was booked." {
				t.Errorf("declined: got %q, %v", got, err)
			}
			c.Close()
			toServer.Close()
			<-done
		})
	}
}

func check(t *testing.T, c *mcp.Client, wantSteps int) {
	t.Helper()
	type forecast struct {
		City    string
		Degrees []int
	}
	steps := 0
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { steps++ }})
	f, err := mcp.CallTool[forecast](ctx, c, "forecast", map[string]any{"city": "Oslo", "days": 3})
	if err != nil || !slices.Equal(f.Degrees, []int{20, 19, 18}) || steps < wantSteps {
		t.Errorf("forecast: got %+v after %d steps, %v", f, steps, err)
	}
	f, err = mcp.CallTool[forecast](t.Context(), c, "forecast", map[string]any{"city": "Oslo"})
	if err != nil || !slices.Equal(f.Degrees, []int{20}) {
		t.Errorf("default: got %+v, %v", f, err)
	}
	if _, err = mcp.CallTool[forecast](t.Context(), c, "forecast", map[string]any{"city": "Oslo", "days": 8}); err == nil {
		t.Error("too many days: got no error")
	}
	if got, err := mcp.CallTool[string](t.Context(), c, "book", map[string]any{"city": "Oslo"}); err != nil ||
		got != "3 nights in Oslo are booked." {
		t.Errorf("book: got %q, %v", got, err)
	}
	if res, err := c.ReadResource(t.Context(), "city:///Oslo"); err != nil || res.Contents[0].Text != "Oslo is a city." {
		t.Errorf("resource: got %+v, %v", res, err)
	}
	prompt, err := c.GetPrompt(t.Context(), "plan", map[string]string{"name": "Oslo"})
	if err != nil || prompt.Messages[0].Content.(*mcp.TextContent).Text != "Plan a trip to Oslo." {
		t.Errorf("prompt: got %+v, %v", prompt, err)
	}
}

// TestClientsAreTheSame calls the server of each SDK, as a child process, with its own client.
func TestClientsAreTheSame(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range programs {
		t.Run(name, func(t *testing.T) {
			command := filepath.Join(t.TempDir(), name)
			if err := os.Symlink(self, command); err != nil {
				t.Fatal(err)
			}
			got, err := program.forecast(t.Context(), command)
			if err != nil || !slices.Equal(got, []int{20, 19}) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestLines counts the lines of code, without empty lines and comments. The guides must have these counts.
func TestLines(t *testing.T) {
	count := map[string]int{}
	for name := range programs {
		for _, file := range []string{"server.go", "client.go"} {
			count[name+"/"+file] = lines(t, name+"/"+file)
			t.Logf("%s/%s: %d lines of code", name, file, count[name+"/"+file])
		}
	}
	for name, guide := range map[string]string{
		"gosdk": "../../docs/migrating-from-go-sdk.md", "mcpgo": "../../docs/migrating-from-mcp-go.md",
	} {
		for _, file := range []string{"server", "client"} {
			checkRow(t, guide, fmt.Sprintf("| %s | %d | %d |", file, count[name+"/"+file+".go"], count["patchbay/"+file+".go"]))
		}
	}
}

// ports are the example servers of other SDKs that the programs in examples are ports of.
var ports = []struct {
	name   string // of the port
	module string // of the original, at the release that is in go.mod; empty for another language
	files  []string
	want   int // lines of code of the original
	guides []string
}{
	{"everything-gosdk", "github.com/modelcontextprotocol/go-sdk", []string{"examples/server/everything/main.go"}, 244,
		[]string{"../../docs/migrating-from-go-sdk.md"}},
	{"everything-mcpgo", "github.com/mark3labs/mcp-go", []string{"examples/everything/main.go", "examples/everything/id.go"},
		538, []string{"../../docs/migrating-from-mcp-go.md"}},
	// modelcontextprotocol/python-sdk v1.29.0 (98b7159cb892), examples/snippets/servers/fastmcp_quickstart.py, without the
	// docstring of the module.
	{"fastmcp", "", nil, 21, []string{"../../docs/migrating-from-go-sdk.md", "../../docs/migrating-from-mcp-go.md"}},
}

// TestLinesOfPorts compares the lines of code of the ports with those of the originals.
func TestLinesOfPorts(t *testing.T) {
	for _, port := range ports {
		original := port.want
		if port.module != "" {
			dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", port.module).Output()
			if err != nil {
				t.Fatal(err)
			}
			original = 0
			for _, file := range port.files {
				original += lines(t, filepath.Join(string(bytes.TrimSpace(dir)), file))
			}
		}
		if original != port.want {
			t.Errorf("%s: the original has %d lines of code, want %d", port.name, original, port.want)
		}
		own := lines(t, "../../examples/"+port.name+"/main.go")
		t.Logf("%s: %d lines of code, the original %d", port.name, own, original)
		for _, guide := range port.guides {
			checkRow(t, guide, fmt.Sprintf("| [%s](../examples/%[1]s/main.go) | %d | %d |", port.name, original, own))
		}
	}
}

// lines returns the lines of code of a Go file.
func lines(t *testing.T, file string) (n int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
			n++
		}
	}
	return n
}

func checkRow(t *testing.T, guide, row string) {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(row+"\n")) {
		t.Errorf("%s: want the row %s", guide, row)
	}
}
