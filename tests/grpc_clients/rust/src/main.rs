//! The official Rust client as a test driver; README.md of the directory above describes the commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::{engine::general_purpose::STANDARD, Engine};
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde::Deserialize;
use serde_json::{json, Value};
use tokio::io::{stdin, AsyncBufReadExt, BufReader};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
// The crate gives a call as long as the server is asked to wait, which it does for 20 s at most.
const WAIT_S: u64 = 40;

struct Refusal {
    kind: String,
    code: Option<i32>,
    message: String,
}

impl Refusal {
    fn new(kind: &str, message: impl Into<String>) -> Self {
        Refusal { kind: kind.into(), code: None, message: message.into() }
    }
}

impl From<ClientError> for Refusal {
    fn from(error: ClientError) -> Self {
        let name = error.context().iter().find(|(key, _)| *key == "code").map(|(_, name)| name.as_str());
        // The crate shows names of codes only. This is the one that tests look at.
        let code = (name == Some("TOPIC_NOT_FOUND")).then_some(40402);
        Refusal { kind: format!("{:?}", error.kind()), code, message: error.to_string() }
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Refusal::new("BadCommand", error.to_string())
    }
}

type Answer = Result<Value, Refusal>;

enum Client {
    Producer(Producer),
    Consumer(SimpleConsumer, String, FilterExpression),
}

#[derive(Deserialize)]
struct Start {
    endpoints: String,
    #[serde(default)]
    tls: bool,
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    decisions: HashMap<String, String>,
    #[serde(default)]
    group: String,
    #[serde(default)]
    subscriptions: HashMap<String, Subscription>,
    wait_s: Option<u64>,
}

#[derive(Deserialize)]
struct Subscription {
    r#type: String,
    expression: String,
}

#[derive(Deserialize)]
struct Outgoing {
    topic: String,
    body: String,
    tag: Option<String>,
    keys: Option<Vec<String>>,
    properties: Option<HashMap<String, String>>,
    group: Option<String>,
    deliver_at_ms: Option<i64>,
}

impl Outgoing {
    fn builder(self) -> MessageBuilder {
        let body = STANDARD.decode(self.body).expect("base64");
        let mut builder = MessageBuilder::builder().set_topic(self.topic).set_body(body);
        if let Some(tag) = self.tag {
            builder = builder.set_tag(tag);
        }
        if let Some(keys) = self.keys {
            builder = builder.set_keys(keys);
        }
        if let Some(properties) = self.properties {
            builder = builder.set_properties(properties);
        }
        if let Some(group) = self.group {
            builder = builder.set_message_group(group);
        }
        if let Some(deliver_at_ms) = self.deliver_at_ms {
            // The crate counts in whole seconds.
            builder = builder.set_delivery_timestamp(deliver_at_ms / 1000);
        }
        builder
    }
}

fn incoming(message: &MessageView) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "topic": message.topic(),
        "body": STANDARD.encode(message.body()),
        "tag": message.tag(),
        "keys": keys,
        "properties": message.properties(),
        "group": message.message_group(),
        "deliver_at_ms": message.delivery_timestamp().map(|seconds| seconds * 1000),
        "id": message.message_id(),
        "attempt": message.delivery_attempt(),
    })
}

#[derive(Default)]
struct Driver {
    clients: Mutex<HashMap<String, Arc<Client>>>,
    received: Mutex<Vec<Arc<MessageView>>>, // a message's index is its ref
}

impl Driver {
    async fn obey(self: Arc<Self>, command: String, fields: Value) -> Answer {
        let name = fields["name"].as_str().unwrap_or_default().to_string();
        match command.as_str() {
            "start_producer" => self.start_producer(name, Start::deserialize(fields)?).await,
            "start_simple_consumer" => self.start_simple_consumer(name, Start::deserialize(fields)?).await,
            "send" => self.send(&name, Outgoing::deserialize(&fields["message"])?).await,
            "send_in_transaction" => {
                let then = fields["then"].as_str();
                self.send_in_transaction(&name, Outgoing::deserialize(&fields["message"])?, then).await
            }
            "receive" => {
                let invisible = Duration::from_secs(u64::deserialize(&fields["invisible_s"])?);
                self.receive(&name, i32::deserialize(&fields["most"])?, invisible).await
            }
            "ack" => self.ack(&name, usize::deserialize(&fields["ref"])?).await,
            "stop" => self.stop(&name).await,
            _ => Err(Refusal::new("Unsupported", format!("the Rust client has nothing to {command} with"))),
        }
    }

    async fn start_producer(&self, name: String, start: Start) -> Answer {
        let mut option = ProducerOption::default();
        option.set_topics(start.topics.clone());
        let (checked, decisions) = (name.clone(), start.decisions.clone());
        let check = move |_: String, message: MessageView| {
            let body = String::from_utf8_lossy(message.body()).into_owned();
            let decision = decisions.get(&body).map_or("UNKNOWN", String::as_str);
            let message = incoming(&message);
            println!("{}", json!({"event": "checked", "name": checked, "message": message, "decision": decision}));
            match decision {
                "COMMIT" => TransactionResolution::COMMIT,
                "ROLLBACK" => TransactionResolution::ROLLBACK,
                _ => TransactionResolution::UNKNOWN,
            }
        };
        let mut producer = Producer::new_transaction_producer(option, common(&start), Box::new(check))?;
        producer.start().await?;
        self.keep(name, Client::Producer(producer))
    }

    async fn start_simple_consumer(&self, name: String, start: Start) -> Answer {
        let client_option = common(&start);
        let mut subscriptions = start.subscriptions.into_iter();
        let (Some((topic, subscription)), None) = (subscriptions.next(), subscriptions.next()) else {
            return Err(Refusal::new("Unsupported", "the Rust client receives from one topic at a time"));
        };
        let filter_type = if subscription.r#type == "SQL" { FilterType::Sql } else { FilterType::Tag };
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(start.group);
        option.set_topics(vec![topic.clone()]);
        let mut consumer = SimpleConsumer::new(option, client_option)?;
        consumer.start().await?;
        let filter = FilterExpression::new(filter_type, subscription.expression);
        self.keep(name, Client::Consumer(consumer, topic, filter))
    }

    async fn send(&self, name: &str, message: Outgoing) -> Answer {
        let client = self.client(name)?;
        let receipt = producer(&client)?.send(message.builder().build()?).await?;
        Ok(json!({"id": receipt.message_id(), "recall_handle": null}))
    }

    async fn send_in_transaction(&self, name: &str, message: Outgoing, then: Option<&str>) -> Answer {
        let client = self.client(name)?;
        let message = message.builder().enable_transaction().build()?;
        let transaction = producer(&client)?.send_transaction_message(message).await?;
        let id = transaction.message_id().to_string();
        match then {
            Some("commit") => transaction.commit().await?,
            Some("rollback") => transaction.rollback().await?,
            _ => {}
        }
        Ok(json!({"id": id}))
    }

    async fn receive(&self, name: &str, most: i32, invisible: Duration) -> Answer {
        let client = self.client(name)?;
        let (consumer, topic, filter) = consumer(&client)?;
        let messages = consumer.receive_with(topic, filter, most, invisible).await?;
        let mut received = self.received.lock().unwrap();
        let rows = messages.into_iter().map(|message| {
            let mut row = incoming(&message);
            row["ref"] = json!(received.len());
            received.push(Arc::new(message));
            row
        });
        Ok(rows.collect())
    }

    async fn ack(&self, name: &str, index: usize) -> Answer {
        let client = self.client(name)?;
        let message = self.received.lock().unwrap()[index].clone();
        consumer(&client)?.0.ack(&*message).await?;
        Ok(Value::Null)
    }

    async fn stop(&self, name: &str) -> Answer {
        let client = self.clients.lock().unwrap().remove(name).and_then(Arc::into_inner);
        match client.ok_or_else(|| Refusal::new("BadCommand", format!("{name} is absent or at work")))? {
            Client::Producer(producer) => producer.shutdown().await?,
            Client::Consumer(consumer, ..) => consumer.shutdown().await?,
        }
        Ok(Value::Null)
    }

    fn keep(&self, name: String, client: Client) -> Answer {
        self.clients.lock().unwrap().insert(name, Arc::new(client));
        Ok(Value::Null)
    }

    fn client(&self, name: &str) -> Result<Arc<Client>, Refusal> {
        let found = self.clients.lock().unwrap().get(name).cloned();
        found.ok_or_else(|| Refusal::new("BadCommand", format!("no client {name}")))
    }
}

fn common(start: &Start) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(&start.endpoints);
    option.set_enable_tls(start.tls);
    option.set_timeout(REQUEST_TIMEOUT);
    option.set_long_polling_timeout(Duration::from_secs(start.wait_s.unwrap_or(WAIT_S)));
    option
}

fn producer(client: &Client) -> Result<&Producer, Refusal> {
    match client {
        Client::Producer(producer) => Ok(producer),
        Client::Consumer(..) => Err(Refusal::new("BadCommand", "a consumer sends nothing")),
    }
}

fn consumer(client: &Client) -> Result<(&SimpleConsumer, &str, &FilterExpression), Refusal> {
    match client {
        Client::Consumer(consumer, topic, filter) => Ok((consumer, topic, filter)),
        Client::Producer(_) => Err(Refusal::new("BadCommand", "a producer receives nothing")),
    }
}

async fn answer(driver: Arc<Driver>, row: Value) {
    let command = row["do"].as_str().unwrap_or_default().to_string();
    let id = row["id"].clone();
    // The crate panics at what it does not expect, for example a code that is newer than it.
    let done = tokio::spawn(driver.obey(command, row)).await;
    match done.unwrap_or_else(|error| Err(Refusal::new("Panic", error.to_string()))) {
        Ok(result) => println!("{}", json!({"id": id, "result": result})),
        Err(Refusal { kind, code, message }) => {
            println!("{}", json!({"id": id, "error": {"kind": kind, "code": code, "message": message}}));
        }
    }
}

#[tokio::main]
async fn main() {
    let driver = Arc::new(Driver::default());
    let mut lines = BufReader::new(stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tokio::spawn(answer(driver.clone(), serde_json::from_str(&line).expect("JSON")));
    }
}
