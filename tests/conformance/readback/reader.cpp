// Networks as NVIDIA's own ONNX parser for TensorRT-RTX makes them, layer by layer, in the form of trtc_network::Network.
//
//   reader LIB_DIR      then, a line on stdin for each model:  MODEL <tab> OUT
//
// OUT.json gets the network and "spans", the offset and length of each block of weights in OUT.bin. The answer, a line on
// stdout: "ok", "refused WHY" (the parser's words), or "unreadable WHAT" (a layer that the network's form does not have).

#include "layers.h"

#include <NvOnnxParser.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace {

class Logger : public ILogger {
public:
    void log(Severity, char const*) noexcept override {}
} logger;

// A layer, or a loop or conditional with all its layers.
using Structure = void const*;

class Network : Layers {
public:
    Network(INetworkDefinition& network, std::ostream& bin) : Layers(bin), network_(network) {}

    std::string json()
    {
        std::vector<std::string> inputs, outputs;
        for (int k = 0; k < network_.getNbInputs(); ++k)
            inputs.push_back(port(*network_.getInput(k)));
        for (int k = 0; k < network_.getNbLayers(); ++k)
            layers_.push_back(network_.getLayer(k));
        find_structures();
        std::vector<ILayer*> all(layers_);
        std::string const entries = block(all, nullptr);
        for (int k = 0; k < network_.getNbOutputs(); ++k)
            outputs.push_back(port(*network_.getOutput(k)));
        return object({{"network",
                           object({{"name", "\"readback\""}, {"tensors", list(tensors_)}, {"inputs", list(inputs)},
                               {"weights", list(weights_)}, {"layers", entries}, {"outputs", list(outputs)},
                               {"profile", "[]"}, {"nodes", list(nodes_)}})},
            {"spans", list(spans_)}});
    }

private:
    std::string port(ITensor& tensor)
    {
        return object({{"name", quoted(tensor.getName())}, {"tensor", id(&tensor)}});
    }

    // The loop or conditional that a layer is an edge of.
    static Structure edge_of(ILayer* layer)
    {
        switch (layer->getType()) {
        case LayerType::kTRIP_LIMIT:
        case LayerType::kRECURRENCE:
        case LayerType::kITERATOR:
        case LayerType::kLOOP_OUTPUT: return static_cast<ILoopBoundaryLayer*>(layer)->getLoop();
        case LayerType::kCONDITION:
        case LayerType::kCONDITIONAL_INPUT:
        case LayerType::kCONDITIONAL_OUTPUT:
            return static_cast<IIfConditionalBoundaryLayer*>(layer)->getConditional();
        default: return nullptr;
        }
    }

    static bool is_entry(ILayer* layer)
    {
        auto const type = layer->getType();
        return type == LayerType::kRECURRENCE || type == LayerType::kITERATOR || type == LayerType::kCONDITIONAL_INPUT;
    }

    static bool is_exit(ILayer* layer)
    {
        return layer->getType() == LayerType::kLOOP_OUTPUT || layer->getType() == LayerType::kCONDITIONAL_OUTPUT;
    }

    // What a loop or conditional has inside: all that its entries lead to, up to its exits.
    void find_structures()
    {
        for (ILayer* layer : layers_) {
            for (int k = 0; k < layer->getNbOutputs(); ++k)
                maker_[layer->getOutput(k)] = layer;
            if (Structure const structure = edge_of(layer))
                edges_[structure].push_back(layer);
        }
        for (auto const& [structure, edges] : edges_) {
            std::set<ITensor*> reached;
            std::set<ILayer*>& inside = inside_[structure];
            for (ILayer* edge : edges)
                if (is_entry(edge))
                    reached.insert(edge->getOutput(0));
            for (bool grown = true; grown;) {
                grown = false;
                for (ILayer* layer : layers_) {
                    if (edge_of(layer) == structure || inside.count(layer))
                        continue;
                    bool touched = false;
                    for (int k = 0; k < layer->getNbInputs(); ++k)
                        touched = touched || reached.count(layer->getInput(k));
                    if (!touched)
                        continue;
                    if (edge_of(layer))
                        throw Unreadable{"control flow inside of control flow"};
                    grown = inside.insert(layer).second;
                    for (int k = 0; k < layer->getNbOutputs(); ++k)
                        reached.insert(layer->getOutput(k));
                }
            }
        }
    }

    // The entries of layers that stand side by side, in an order in which each tensor is made before it is used.
    std::string block(std::vector<ILayer*> const& layers, Structure around)
    {
        std::map<ILayer*, Structure> owner;
        std::set<ILayer*> here(layers.begin(), layers.end());
        if (!around)
            for (auto const& [structure, edges] : edges_) {
                for (ILayer* layer : edges)
                    owner[layer] = structure;
                for (ILayer* layer : inside_[structure])
                    owner[layer] = structure;
            }
        std::vector<std::string> entries;
        std::set<void const*> done, open;
        for (ILayer* layer : layers)
            visit(layer, here, owner, done, open, entries);
        return list(entries);
    }

    void visit(ILayer* layer, std::set<ILayer*> const& here, std::map<ILayer*, Structure>& owner, std::set<void const*>& done,
        std::set<void const*>& open, std::vector<std::string>& entries)
    {
        auto const owned = owner.find(layer);
        Structure const structure = owned == owner.end() ? nullptr : owned->second;
        void const* key = structure ? structure : layer;
        if (done.count(key))
            return;
        if (!open.insert(key).second)
            throw Unreadable{"a cycle"};
        std::vector<ILayer*> group{layer};
        if (structure) {
            group = edges_[structure];
            group.insert(group.end(), inside_[structure].begin(), inside_[structure].end());
        }
        for (ILayer* member : group)
            for (int k = 0; k < member->getNbInputs(); ++k) {
                auto const made = maker_.find(member->getInput(k));
                if (made == maker_.end() || !here.count(made->second))
                    continue;
                auto const other = owner.find(made->second);
                if (structure && other != owner.end() && other->second == structure)
                    continue;
                visit(made->second, here, owner, done, open, entries);
            }
        done.insert(key);
        nodes_.push_back(quoted(layer->getName()));
        node_ = static_cast<int>(nodes_.size() - 1);
        int const node = node_;
        if (structure) {
            entries.push_back(flow(structure, node));
            return;
        }
        if (layer->getType() == LayerType::kASSERTION)
            return;
        std::string const text = this->layer(*layer);
        std::vector<std::string> outputs;
        for (int k = 0; k < layer->getNbOutputs(); ++k)
            outputs.push_back(id(layer->getOutput(k)));
        entries.insert(entries.end(), extra_.begin(), extra_.end());
        extra_.clear();
        entries.push_back(entry(text, outputs, node));
    }

    std::vector<ILayer*> in_order(std::set<ILayer*> const& some)
    {
        std::vector<ILayer*> found;
        std::copy_if(layers_.begin(), layers_.end(), std::back_inserter(found), [&](ILayer* l) { return some.count(l) > 0; });
        return found;
    }

    // Layers inside a conditional that a tensor needs.
    void needed(ITensor* tensor, std::set<ILayer*> const& inside, std::set<ILayer*>& found)
    {
        auto const made = maker_.find(tensor);
        if (made == maker_.end() || !inside.count(made->second) || !found.insert(made->second).second)
            return;
        for (int k = 0; k < made->second->getNbInputs(); ++k)
            needed(made->second->getInput(k), inside, found);
    }

    std::string flow(Structure structure, int node)
    {
        auto const& edges = edges_[structure];
        auto const& inside = inside_[structure];
        std::vector<std::string> outputs;
        bool const conditional = std::any_of(
            edges.begin(), edges.end(), [](ILayer* l) { return l->getType() == LayerType::kCONDITION; });
        if (conditional) {
            std::string condition;
            std::vector<std::string> captures, results[2];
            std::set<ILayer*> branches[2];
            for (ILayer* edge : edges) {
                if (edge->getType() == LayerType::kCONDITION)
                    condition = in(*edge, 0);
                else if (edge->getType() == LayerType::kCONDITIONAL_INPUT)
                    captures.push_back(object({{"outer", in(*edge, 0)}, {"inner", id(edge->getOutput(0))}}));
                else {
                    outputs.push_back(id(edge->getOutput(0)));
                    for (int branch : {0, 1}) {
                        results[branch].push_back(in(*edge, branch));
                        needed(edge->getInput(branch), inside, branches[branch]);
                    }
                }
            }
            for (ILayer* layer : branches[0])
                if (branches[1].count(layer))
                    throw Unreadable{"a layer of both branches"};
            auto const region = [&](int branch) {
                std::string const layers = block(in_order(branches[branch]), structure);
                return object({{"layers", layers}, {"outputs", list(results[branch])}});
            };
            return entry(variant("If",
                             {{"condition", condition}, {"captures", list(captures)}, {"then_branch", region(0)},
                                 {"else_branch", region(1)}}),
                outputs, node);
        }
        std::vector<std::string> limits, recurrences, iterators, results;
        for (ILayer* edge : edges) {
            if (edge->getType() == LayerType::kTRIP_LIMIT)
                limits.push_back(
                    list({name(kTrip, static_cast<ITripLimitLayer*>(edge)->getTripLimit()), in(*edge, 0)}));
            else if (edge->getType() == LayerType::kRECURRENCE)
                recurrences.push_back(
                    object({{"initial", in(*edge, 0)}, {"current", id(edge->getOutput(0))}, {"next", in(*edge, 1)}}));
            else if (edge->getType() == LayerType::kITERATOR) {
                auto* iterator = static_cast<IIteratorLayer*>(edge);
                iterators.push_back(object({{"x", in(*edge, 0)}, {"current", id(edge->getOutput(0))},
                    {"axis", std::to_string(axis_of(iterator->getAxis(), *edge->getInput(0)))},
                    {"reverse", boolean(iterator->getReverse())}}));
            } else {
                auto* output = static_cast<ILoopOutputLayer*>(edge);
                bool const last = output->getLoopOutput() == LoopOutput::kLAST_VALUE;
                outputs.push_back(id(edge->getOutput(0)));
                results.push_back(object({{"kind", name(kLoopOutput, output->getLoopOutput())}, {"value", in(*edge, 0)},
                    {"axis", std::to_string(last ? 0 : output->getAxis())},
                    {"length", last ? "null" : optional(*edge, 1)}}));
            }
        }
        std::string const body = block(in_order(inside), structure);
        return entry(variant("Loop",
                         {{"limits", list(limits)}, {"recurrences", list(recurrences)}, {"iterators", list(iterators)},
                             {"body", body}, {"results", list(results)}}),
            outputs, node);
    }

    INetworkDefinition& network_;
    std::map<ITensor*, ILayer*> maker_;
    std::map<Structure, std::vector<ILayer*>> edges_;
    std::map<Structure, std::set<ILayer*>> inside_;
    std::vector<std::string> nodes_;
};

template <typename F>
F symbol(void* library, char const* name)
{
    return reinterpret_cast<F>(dlsym(library, name));
}

std::string one_line(std::string text)
{
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

std::string read_model(IBuilder& builder, void* parsers, std::string const& model, std::string const& out)
{
    auto const flags = 1U << static_cast<uint32_t>(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
    std::unique_ptr<INetworkDefinition> network(builder.createNetworkV2(flags));
    auto create = symbol<void* (*) (void*, void*, int)>(parsers, "createNvOnnxParser_INTERNAL");
    std::unique_ptr<nvonnxparser::IParser> parser(
        static_cast<nvonnxparser::IParser*>(create(network.get(), &logger, NV_ONNX_PARSER_VERSION)));
    if (!parser->parseFromFile(model.c_str(), 0)) {
        std::string const why = parser->getNbErrors() > 0 ? parser->getError(0)->desc() : "";
        return "refused " + one_line(why);
    }
    std::ofstream bin(out + ".bin", std::ios::binary), json(out + ".json");
    try {
        json << Network(*network, bin).json();
    } catch (Unreadable const& unreadable) {
        return "unreadable " + unreadable.what;
    }
    return bin.flush() && json.flush() ? "ok" : "unreadable the files cannot be written";
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s LIB_DIR\n", argv[0]);
        return 2;
    }
    std::string const folder = argv[1];
    void* library = dlopen((folder + "/libtensorrt_rtx.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* parsers = dlopen((folder + "/libtensorrt_onnxparser_rtx.so.1").c_str(), RTLD_NOW);
    if (!library || !parsers) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    auto create = symbol<void* (*) (void*, int)>(library, "createInferBuilder_INTERNAL");
    auto* builder = static_cast<IBuilder*>(create(&logger, NV_TENSORRT_VERSION));
    for (std::string line; builder && std::getline(std::cin, line);) {
        auto const tab = line.find('\t');
        std::cout << read_model(*builder, parsers, line.substr(0, tab), line.substr(tab + 1)) << std::endl;
    }
    return 0;
}
