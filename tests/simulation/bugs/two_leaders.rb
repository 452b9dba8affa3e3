# frozen_string_literal: true

# Three nodes elect a leader for each term. A node that counts a majority of the votes it has received, and not of all nodes, elects itself
# when it is cut off.
Bugs.define("two leaders") do |world, mended|
  nodes = %w[one two three]
  leaders = Hash.new { |terms, term| terms[term] = [] }
  nodes.each do |node|
    world.client(node) do
      votes = {} # term => the candidate that this node votes for
      listening = Fiber.schedule { Bugs.listen(node) { |line| line.split.then { |term, candidate| votes[term.to_i] ||= candidate } } }
      4.times do
        sleep rand(1.0..3.0)
        term = (votes.keys.max || 0) + 1
        votes[term] = node
        answers = (nodes - [node]).filter_map do |other|
          Timeout.timeout(0.2) { Bugs.ask(other, "#{term} #{node}") }
        rescue Timeout::Error, SystemCallError, EOFError
          nil
        end
        won = answers.count(node) + 1
        leaders[term] << node if won > (mended ? nodes.size : answers.size + 1) / 2
      end
      sleep 10
      Fiber.scheduler.cancel_fiber(listening, nil)
    end
  end
  world.at(rand(2.0..6.0)) { world.partition("one") }
  world.at(8) { world.heal }
  world.check { leaders.each { |term, elected| raise "leaders of term #{term}: #{elected.join(", ")}" if elected.uniq.size > 1 } }
end
