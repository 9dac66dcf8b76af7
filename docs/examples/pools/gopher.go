package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

var api = os.Getenv("GROUPFLOW_URL") + "/api/pools/couriers/workers/gopher"

func call(path string, body, answer any) {
	packed, err := json.Marshal(body)
	check(err)
	request, err := http.NewRequest("POST", api+path, bytes.NewReader(packed))
	check(err)
	request.Header.Set("Authorization", "Bearer "+os.Getenv("GROUPFLOW_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	check(err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		panic(path + ": " + response.Status)
	}
	check(json.NewDecoder(response.Body).Decode(answer))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

type task struct {
	ID    string          `json:"id"`
	Fence int64           `json:"fence"`
	Body  json.RawMessage `json:"body"`
}

type settlement struct {
	ID      string `json:"id"`
	Fence   int64  `json:"fence"`
	Outcome string `json:"outcome"`
}

func main() {
	var claimed struct{ Tasks []task }
	call("/claims", map[string]int{"limit": 5, "wait": 10}, &claimed)
	said := []settlement{}
	for _, each := range claimed.Tasks {
		said = append(said, settlement{each.ID, each.Fence, "done"})
	}
	var verdicts []struct{ ID, Verdict string }
	call("/settlements", said, &verdicts)
	for _, each := range verdicts {
		fmt.Println(each.ID, each.Verdict)
	}
}
