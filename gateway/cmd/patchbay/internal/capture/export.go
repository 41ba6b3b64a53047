package capture

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// MaxExported limits the exchanges of an export: a recording has at most 10,000 connections.
const MaxExported = 10_000

// errNoMessages reports exchanges without frames.
var errNoMessages = errors.New("none of the exchanges has a message: messages are kept while a console runs, the " +
	"oldest are dropped first")

// WriteRecording writes the messages of exchanges in the format of `patchbay record`. Each exchange is a
// connection of its own, because messages of different connections may have equal ids.
func (r *Ring) WriteRecording(w io.Writer, ids []uint64) error {
	var entries []recording.Entry
	for _, id := range ids[:min(len(ids), MaxExported)] {
		x, frames, _ := r.Get(id)
		connection, begun := strconv.FormatUint(id, 10), len(entries)
		for i := range frames {
			if f := &frames[i]; f.Kind == Message {
				entries = append(entries, entryOf(f, connection))
			}
		}
		if len(entries) > begun {
			entries = slices.Insert(entries, begun, recording.Entry{Version: recording.Version, Connection: connection,
				Program: "patchbay " + build.Version(), Target: x.Server, Time: entries[begun].Time})
		}
	}
	if len(entries) == 0 {
		return errNoMessages
	}
	slices.SortStableFunc(entries, func(a, b recording.Entry) int { return a.Time.Compare(b.Time) })
	for i := range entries {
		text, err := json.Marshal(&entries[i])
		if err != nil {
			return err
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// entryOf returns the line for a message. A message that is cut, or is invalid without its secrets,
// becomes a message without content.
func entryOf(f *Frame, connection string) recording.Entry {
	e := recording.Entry{Time: f.Time.UTC(), Connection: connection, From: recording.FromServer}
	if f.Sent {
		e.From = recording.FromClient
	}
	e.Message = jsontext.Value(f.Text)
	if rawjson.Valid(e.Message) != nil {
		m := &jsonrpc.Message{}
		_ = m.ID.UnmarshalJSON(memberOfCut(f.Text, "id"))
		m.Method, _ = rawjson.Unquote(memberOfCut(f.Text, "method"))
		if m.Method == "" {
			m.Result = []byte("{}")
		}
		e.Message, e.Cut, e.Start = jsonrpc.Append(nil, m), f.Size, bounded(f.Text, maxText)
	}
	return e
}

// memberOfCut returns a member at the beginning of an object that may be cut.
func memberOfCut(text, name string) []byte {
	raw, _ := rawjson.Get([]byte(text), name)
	return raw
}

type object = map[string]any

// WriteHAR writes exchanges as a HAR 1.2. The URL of an exchange that is no HTTP request is
// mcp://SERVER/TARGET, and the frames of a direction are its body.
func (r *Ring) WriteHAR(w io.Writer, ids []uint64) error {
	entries := []object{}
	for _, id := range ids[:min(len(ids), MaxExported)] {
		if x, frames, ok := r.Get(id); ok {
			entries = append(entries, harEntry(&x, frames))
		}
	}
	return json.NewEncoder(w).Encode(object{"log": object{"version": "1.2", "entries": entries,
		"creator": object{"name": "patchbay", "version": build.Version()}}})
}

func harEntry(x *Exchange, frames []Frame) object {
	request, sent := harMessage(frames, true)
	response, received := harMessage(frames, false)
	request["method"], request["url"], request["queryString"] = x.Method, x.Target, []object{}
	if x.Hop != HTTP && x.Hop != OAuth {
		request["url"] = "mcp://" + url.PathEscape(x.Server) + "/" + url.PathEscape(x.Target)
	}
	if sent != "" {
		request["postData"] = object{"mimeType": "application/json", "text": sent}
	}
	status, _ := strconv.Atoi(strings.TrimPrefix(x.Status, "http "))
	if x.Status == StatusOK {
		status = http.StatusOK
	}
	response["status"], response["statusText"], response["redirectURL"] = status, x.Status, ""
	response["content"] = object{"size": len(received), "mimeType": "application/json", "text": received}
	ms := func(d time.Duration) float64 { return float64(max(d, 0)) / float64(time.Millisecond) }
	return object{"startedDateTime": x.Queued, "time": ms(x.End), "request": request, "response": response,
		"cache": object{}, "comment": string(x.Hop), "timings": object{"blocked": ms(x.Sent), "send": 0,
			"wait": ms(x.FirstByte - x.Sent), "receive": ms(x.End - x.FirstByte)}}
}

// harMessage returns the members that requests and responses share, and the body.
func harMessage(frames []Frame, sent bool) (message object, body string) {
	headers := []object{}
	for i := range frames {
		f := &frames[i]
		switch lines := strings.Split(f.Text, "\n"); {
		case f.Sent != sent:
		case f.Kind != Header:
			body += f.Text + "\n"
		default:
			for _, line := range lines[1:] {
				if name, value, ok := strings.Cut(line, ": "); ok {
					headers = append(headers, object{"name": name, "value": value})
				}
			}
		}
	}
	return object{"httpVersion": "HTTP/1.1", "cookies": []object{}, "headers": headers, "headersSize": -1,
		"bodySize": len(body)}, body
}
