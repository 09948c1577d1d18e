package readyz_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redlock-go/redlock"
	"github.com/redlock-go/redlock/readyz"
	"github.com/redlock-go/redlock/redlocktest"
)

func ExampleHandler() {
	cluster := redlocktest.Start(3) // real Redis nodes in production
	defer cluster.Close()
	locker, err := redlock.NewLocker(cluster.Option())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	mux := http.NewServeMux()
	mux.Handle("/readyz", readyz.Handler(locker))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Println(answer.Code)
	// Output: 200
}
