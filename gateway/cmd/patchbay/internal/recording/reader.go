package recording

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxLines bounds the lines of a recording: a replay needs some memory for each.
	maxLines = 1_000_000
	// maxConnections limits the connections of a recording, because each holds its own tables.
	maxConnections = 10_000
)

// A Recording contains the responses of a server, by request. It must not change after Read.
type Recording struct {
	calls      map[string][]*call // by key, in the order of the requests
	order      []*call            // all of them
	discovered []byte             // the result of server/discover, or nil
	modern     bool               // discovered is the server's own result
}

// Read reads a recording, without an incomplete last line of a killed process. Errors name lines.
func Read(r io.Reader) (*Recording, error) {
	limited := &io.LimitedReader{R: r, N: maxFile + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	lines.Split(splitLines)
	b := builder{connections: map[string]*connection{}}
	n := 0
	for lines.Scan() {
		text := lines.Bytes()
		if n++; n > maxLines {
			return nil, fmt.Errorf("line %d: a recording has at most %d lines", n, maxLines)
		}
		if err := b.add(text, n == 1); err != nil {
			if n > 1 && text[len(text)-1] != '\n' {
				break
			}
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: a line has at most %d bytes", n+1, maxLine)
	case err != nil:
		return nil, err
	case limited.N == 0:
		return nil, fmt.Errorf("a recording has at most %d MiB", maxFile>>20)
	case n == 0:
		return nil, errors.New("an empty file is not a recording")
	}
	return b.recording()
}

// splitLines returns lines with their line break, which the last line may lack.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// add adds a line. Only the first line of a connection contains the version.
func (b *builder) add(text []byte, first bool) error {
	var l Entry
	err := json.Unmarshal(text, &l)
	switch {
	case first && (err != nil || l.Version == 0):
		return errors.New(`not a recording: want {"recording":1, …} as first line`)
	case err != nil:
		return fmt.Errorf("invalid line: %w", err)
	case l.Version != 0 && l.Version != Version:
		return fmt.Errorf("version %d of the format: this program reads version %d", l.Version, Version)
	case l.Version != 0:
		if len(b.connections) >= maxConnections {
			return fmt.Errorf("a recording has at most %d connections", maxConnections)
		}
		b.connections[l.Connection] = newConnection()
		return nil
	}
	c := b.connections[l.Connection]
	switch {
	case c == nil:
		return fmt.Errorf("unknown connection %.20q: want a line with \"recording\" first", l.Connection)
	case l.Message == nil:
		return nil // an HTTP request or response without a message
	}
	m, err := jsonrpc.Decode(bytes.Clone(l.Message))
	if err != nil {
		return fmt.Errorf("invalid message: %w", err)
	}
	switch l.From {
	case FromClient:
		b.fromClient(c, &l, m)
	case FromServer:
		b.fromServer(c, &l, m)
	default:
		return fmt.Errorf("invalid \"from\" %.20q: want client or server", l.From)
	}
	return nil
}
