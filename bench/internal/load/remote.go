package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Remote is the load of a program that makes the calls by itself, which is a
// client under test. It tells the program over one pipe how long to make them
// and reads from the other what came of it.
type Remote struct {
	to, from Pipe
	in       *json.Decoder
}

// NewRemote makes the load of the program at the other ends of the two pipes,
// which runs Serve. The load owns the pipes from here on.
func NewRemote(to, from Pipe) *Remote {
	return &Remote{to: to, from: from, in: json.NewDecoder(from)}
}

// outcome is what a program says after each slice.
type outcome struct {
	Slice
	Error string `json:",omitempty"`
}

// Run implements Load.
func (r *Remote) Run(d time.Duration) (Slice, error) {
	end := time.Now().Add(d + grace)
	if err := errors.Join(r.to.SetDeadline(end), r.from.SetDeadline(end)); err != nil {
		return Slice{}, err
	}
	if _, err := fmt.Fprintln(r.to, d); err != nil {
		return Slice{}, err
	}
	var o outcome
	if err := r.in.Decode(&o); err != nil {
		return Slice{}, fmt.Errorf("client: %w", err)
	}
	if o.Error != "" {
		return Slice{}, errors.New(o.Error)
	}
	if o.Calls == 0 {
		return Slice{}, errors.New("client made no calls")
	}
	return o.Slice, nil
}

// Close implements Load. The program ends when its input does.
func (r *Remote) Close() error {
	return errors.Join(r.to.Close(), r.from.Close())
}

// Serve runs one slice for each line of in and says on out what it came to. It
// returns when in ends.
func Serve(in io.Reader, out io.Writer, run func(time.Duration) (Slice, error)) error {
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		var o outcome
		if o.Slice, err = run(d); err != nil {
			o.Error = err.Error()
		}
		if err := answers.Encode(o); err != nil {
			return err
		}
	}
	return lines.Err()
}
