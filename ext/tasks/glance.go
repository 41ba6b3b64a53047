package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// glance returns the head of a task to whoever asks for it: not of one whose time is over, and not of one that was lost.
// Clients look at a task far more often than it changes, and its params or its result may be of any size.
func (s *Server) glance(ctx context.Context, owner, id string) (*job, error) {
	j, err := s.readHead(ctx, owner, id)
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
	case j.Phase == phaseWorking && s.lost(id):
		err = s.adopt(ctx, owner, id)
	default:
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	j, err = s.readHead(ctx, owner, id)
	return j, public(err)
}

func (s *Server) readHead(ctx context.Context, owner, id string) (*job, error) {
	if !validID(id) {
		return nil, ErrUnknown
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	r, err := s.store.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return openHead(r)
}

// openHead reads a record up to where its payload begins; see [state]. The job keeps its Data.
func openHead(r Record) (*job, error) {
	j := &job{Record: r}
	head, err := headOf(r.Data)
	if err == nil {
		err = json.Unmarshal(head, &j.state)
	}
	if err == nil {
		err = j.checkHead()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return j, nil
}

// whole returns the task that the job is the head of.
func (j *job) whole() (*job, error) {
	all, err := openJob(j.Record)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", short(j.ID), err)
	}
	return all, nil
}

// headOf returns the members of an object that come before its payload, as an object. What comes after is not looked at.
func headOf(data []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data)) // of which it makes no copy
	if d.PeekKind() != '{' {
		return nil, errors.New("it is no object")
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
