package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// readHead returns the head of a task to a client, after it has ended the task if its time is over
// and recovered it if its run was lost. Clients read a task far more often than it changes, and its
// params and result may be large.
func (s *Server) readHead(ctx context.Context, owner, id string) (*job, error) {
	j, err := s.loadHead(ctx, owner, id)
	switch {
	case err == nil:
	case errors.Is(err, ErrUnknown):
		return nil, errUnknownTask
	default:
		return nil, fmt.Errorf("read task %s: %w", short(id), err)
	}
	switch now := time.Now(); {
	case j.Done && j.expired(now):
		return nil, errUnknownTask
	case !j.Done && j.expired(now):
		_, err = s.expire(ctx, owner, id)
	case j.Phase == phaseWorking && s.isLost(id):
		err = s.recoverTask(ctx, owner, id)
	default:
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	j, err = s.loadHead(ctx, owner, id)
	return j, clientError(err)
}

func (s *Server) loadHead(ctx context.Context, owner, id string) (*job, error) {
	r, err := s.readRecord(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return openHead(r)
}

// openHead decodes a record up to its payload; see [state]. The job keeps the record's Data.
func openHead(r Record) (*job, error) {
	j := &job{Record: r}
	head, err := headOf(r.Data)
	if err == nil {
		err = jsonv2.Unmarshal(head, &j.state)
	}
	if err == nil {
		err = j.checkHead()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return j, nil
}

// full decodes the record of a job that openHead returned.
func (j *job) full() (*job, error) {
	all, err := openJob(j.Record)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", short(j.ID), err)
	}
	return all, nil
}

// headOf returns the members of an object that come before its payload, as an object. The rest is
// not decoded.
func headOf(data []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data)) // does not copy data
	if d.PeekKind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() == '"' {
		end := d.InputOffset()
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		switch name.String() {
		case "params", "open", "answers", "memory", "result", "error":
			return append(bytes.Clone(data[:end]), '}'), nil
		}
		if err := d.SkipValue(); err != nil {
			return nil, err
		}
	}
	return data, nil
}
