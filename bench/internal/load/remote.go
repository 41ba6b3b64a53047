package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Remote is the load of a client under test, which makes the calls in its own
// process. It writes the duration of each slice to one pipe and reads the
// result from the other.
type Remote struct {
	to, from Pipe
	in       *json.Decoder
}

// NewRemote returns the load of the program at the other ends of the two pipes,
// which runs Serve. The load takes ownership of the pipes.
func NewRemote(to, from Pipe) *Remote {
	return &Remote{to: to, from: from, in: json.NewDecoder(from)}
}

// An outcome is the message that a program writes after each slice.
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

// Serve runs one slice for each line of in and writes its outcome to out. It
// returns at the end of in.
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
