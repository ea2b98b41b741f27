// The requests of iron_go3, the Go client of IronMQ, by the standard library: its module cannot be fetched from the module proxy.
// Each has its User-Agent and its invalid Accept-Encoding, and a JSON body, GET and DELETE too. It takes 200 and 201 alone for success.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

type message struct {
	Id            string `json:"id"`
	Body          string `json:"body"`
	ReservationId string `json:"reservation_id"`
	ReservedCount int    `json:"reserved_count"`
}

type answer struct {
	Ids           []string  `json:"ids"`
	Messages      []message `json:"messages"`
	Message       message   `json:"message"`
	ReservationId string    `json:"reservation_id"`
	Msg           string    `json:"msg"`
	Queue         struct {
		Size   int              `json:"size"`
		Alerts []map[string]any `json:"alerts"`
	} `json:"queue"`
	Queues []struct {
		Name string `json:"name"`
	} `json:"queues"`
}

// ask sends a request as iron_go3 does; an error has the form that its callers compare: "404 Not Found: Queue not found".
func ask(method, path string, body any) (got answer, err error) {
	if body == nil {
		body = map[string]any{}
	}
	text, _ := json.Marshal(body)
	url := fmt.Sprintf("http://127.0.0.1:%s/3/projects/go/queues%s", os.Getenv("PORT"), path)
	request, err := http.NewRequest(method, url, strings.NewReader(string(text)))
	if err != nil {
		return got, err
	}
	request.Header.Set("Authorization", "OAuth any")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Accept-Encoding", "gzip/deflate")
	request.Header.Set("User-Agent", "iron_go3/mq 3.0 (Linux/amd64; Go/1.26)")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	if err == nil && response.StatusCode != 200 && response.StatusCode != 201 {
		err = fmt.Errorf("%s: %s", response.Status, got.Msg)
	}
	return got, err
}

func must(method, path string, body any) answer {
	got, err := ask(method, path, body)
	if err != nil {
		log.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func want(ok bool, what string, got any) {
	if !ok {
		log.Fatalf("%s: %+v", what, got)
	}
}

func fails(text, method, path string, body any) {
	_, err := ask(method, path, body)
	want(err != nil && err.Error() == text, text, err)
}

type fields = map[string]any

func main() {
	fails("404 Not Found: Queue not found", "GET", "/q", nil)
	batch := fields{"messages": []fields{{"body": "one"}, {"body": "two", "delay": 0}, {"body": "three"}}}
	posted := must("POST", "/q/messages", batch)
	want(len(posted.Ids) == 3, "ids are strings", posted)
	want(must("GET", "/q", nil).Queue.Size == 3, "three messages", nil)
	want(len(must("GET", "/q/messages?n=2", nil).Messages) == 2, "a peek", nil)
	want(must("GET", "/q/messages/"+posted.Ids[1], nil).Message.Body == "two", "one by its id", nil)
	reserved := must("POST", "/q/reservations", fields{"n": 10, "timeout": 60, "wait": 5, "delete": false}).Messages
	want(len(reserved) == 3 && reserved[0].ReservedCount == 1, "all are reserved", reserved)
	at := func(index int) string { return "/q/messages/" + reserved[index].Id }
	touched := must("POST", at(0)+"/touch", fields{"reservation_id": reserved[0].ReservationId, "timeout": 90})
	must("POST", at(0)+"/release", fields{"reservation_id": touched.ReservationId, "delay": 0})
	must("DELETE", at(1), fields{"reservation_id": reserved[1].ReservationId})
	fails("403 Forbidden: Reservation has timed out", "DELETE", at(0), fields{"reservation_id": reserved[0].ReservationId})
	ids := []fields{{"id": reserved[2].Id, "reservation_id": reserved[2].ReservationId}}
	must("DELETE", "/q/messages", fields{"ids": ids})
	again := must("POST", "/q/reservations", fields{"n": 1, "timeout": 0, "wait": 0, "delete": true}).Messages
	want(len(again) == 1 && again[0].Body == "one", "the released one", again)
	want(len(must("POST", "/q/reservations", fields{"n": 1, "wait": 1}).Messages) == 0, "an empty long poll", nil)

	alert := fields{"type": "fixed", "direction": "asc", "trigger": 1, "queue": "alerts"}
	dead := fields{"queue_name": "dead", "max_reservations": 1}
	must("PUT", "/alerts", nil)
	must("PUT", "/mortal", fields{"queue": fields{"alerts": []fields{alert}, "dead_letter": dead}})
	want(len(must("GET", "/mortal", nil).Queue.Alerts) == 1, "one alert", nil)
	must("POST", "/mortal/messages", fields{"messages": []fields{{"body": "m"}}})
	want(len(must("POST", "/alerts/reservations", fields{"n": 1, "wait": 20}).Messages) == 1, "an alert", nil)
	mortal := must("POST", "/mortal/reservations", fields{"n": 1, "timeout": 60}).Messages[0]
	must("POST", "/mortal/messages/"+mortal.Id+"/release", fields{"reservation_id": mortal.ReservationId})
	found := must("POST", "/dead/reservations", fields{"n": 1, "wait": 20, "delete": true}).Messages
	want(len(found) == 1 && found[0].Body == "m", "a dead letter", found)

	must("POST", "/q/messages", fields{"messages": []fields{{"body": "x"}}})
	want(must("DELETE", "/q/messages", nil).Msg == "Cleared", "all are deleted", nil)
	must("DELETE", "/q", nil)
	want(len(must("GET", "?prefix=a&per_page=10", nil).Queues) == 1, "one name with the prefix", nil)

	subscriber := fields{"name": "go", "url": os.Getenv("ENDPOINT")}
	push := fields{"subscribers": []fields{subscriber}, "retries": 3, "retries_delay": 60}
	must("PUT", "/push", fields{"queue": fields{"type": "multicast", "push": push}})
	must("POST", "/push/subscribers", fields{"subscribers": []fields{{"name": "other", "url": "http://127.0.0.1:1/"}}})
	must("DELETE", "/push/subscribers", fields{"subscribers": []fields{{"name": "other"}}})
	must("POST", "/push/messages", fields{"messages": []fields{{"body": "pushed to go"}}})
}
