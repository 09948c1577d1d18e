package asynqlock_test

import (
	"context"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/asynqlock"
)

// It needs a Redis for its queue, so it is compiled here, and run by TestTasksOfOneLockRunOneAtATime.
func ExampleMiddleware() {
	var locker *redlock.Locker // from redlock.NewLocker
	bill := func(ctx context.Context, task *asynq.Task) error {
		token, _ := redlock.FencingToken(ctx) // for whatever must not be done by a worker that lost its lock
		log.Printf("bill %s, fencing token %d", task.Payload(), token)
		return ctx.Err() // ctx ends with the lock
	}

	mux := asynq.NewServeMux()
	mux.Use(asynqlock.Middleware(locker, func(_ context.Context, task *asynq.Task) string {
		return "customer:" + string(task.Payload())
	}))
	mux.HandleFunc("bill", bill)
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: "127.0.0.1:6379"}, asynq.Config{
		IsFailure:      asynqlock.IsFailure,
		RetryDelayFunc: asynqlock.RetryDelay(time.Second, asynq.DefaultRetryDelayFunc),
	})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}
